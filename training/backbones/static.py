"""A table of token vectors (GloVe, word2vec, distilled) as a backbone: one row per token."""

from collections.abc import Sequence

import numpy as np
from safetensors import SafetensorError

from lattemix.build.backbones import BackboneError, Checkpoint, TokenVectors
from lattemix.build.backbones.words import TABLE
from lattemix.tokenization import Tokenizer
from training.backbones import Advance


class StaticVectors:
    """A lookup table. Special and unknown tokens have rows of zeros, and no weight."""

    def __init__(self, checkpoint: Checkpoint, max_tokens: int, layer: int | None = None) -> None:
        self.checkpoint, self.max_tokens = checkpoint, max_tokens
        self.layer = check_layer(checkpoint, layer)
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
        """The same table, which has only one layer."""
        check_layer(self.checkpoint, layer)
        return self

    def encode_layers(self, sentences: Sequence[str], layers: Sequence[int]) -> list[TokenVectors]:
        """The same vectors for each layer."""
        return [self.encode(sentences) for _ in layers]


def check_layer(checkpoint: Checkpoint, layer: int | None) -> int:
    """Return the table's layer; reject any other."""
    own = checkpoint.layer or 0
    if layer not in (None, own):
        raise BackboneError(
            f"{checkpoint.name} has vectors of layer {own} only, so there is no layer {layer}."
        )
    return own
