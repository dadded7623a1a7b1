"""Static word vectors (GloVe, word2vec) as a backbone: one row per token."""

from collections.abc import Sequence

import numpy as np
from safetensors import SafetensorError

from lattemix.build.backbones import BackboneError, Checkpoint, TokenVectors
from lattemix.build.backbones.words import TABLE
from lattemix.tokenization import Tokenizer
from training.backbones import Advance


class StaticVectors:
    """A lookup table. Unknown words share one row of zeros, with weight 0."""

    def __init__(self, checkpoint: Checkpoint, max_tokens: int, layer: int | None = None) -> None:
        self.checkpoint, self.max_tokens, self.layer = checkpoint, max_tokens, 0
        check_layer(checkpoint, layer or 0)
        try:
            self.table = checkpoint.tensors()[TABLE]  # [V, H]
        except (SafetensorError, OSError, KeyError) as error:
            raise BackboneError(f"{checkpoint.name} cannot be loaded: {error}") from error
        self.hidden_size: int = self.table.shape[1]
        self._tokenizer = Tokenizer(checkpoint.tokenizer, max_tokens)

    def encode(
        self, sentences: Sequence[str], exact: bool = False, advance: Advance | None = None
    ) -> TokenVectors:
        """Look up every token."""
        tokens = self._tokenizer(sentences)
        ids = np.concatenate([np.array(text.ids, np.int32) for text in tokens])
        lengths = np.array([len(text.ids) for text in tokens], np.int32)
        truncated = sum(text.truncated for text in tokens)
        if advance:
            advance(len(sentences))
        return TokenVectors(self.table[ids].astype(np.float32), ids, lengths, truncated)

    def at(self, layer: int) -> "StaticVectors":
        """The same table, which has only layer 0."""
        check_layer(self.checkpoint, layer)
        return self

    def encode_layers(self, sentences: Sequence[str], layers: Sequence[int]) -> list[TokenVectors]:
        """The same vectors for each layer."""
        return [self.encode(sentences) for _ in layers]


def check_layer(checkpoint: Checkpoint, layer: int) -> None:
    """Reject any layer but 0."""
    if layer:
        raise BackboneError(f"{checkpoint.name} has no layers, so there is no layer {layer}.")
