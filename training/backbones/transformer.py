"""A frozen Hugging Face encoder: sentences in, the token vectors of one layer out."""

from collections.abc import Sequence
from contextlib import nullcontext
from copy import copy

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel
from transformers.utils import logging

from app.engine.encoder import batches
from app.engine.tokenization import Tokenizer
from training.backbones.checkpoint import BackboneError, Checkpoint
from training.backbones.tokens import TokenVectors
from training.device import autocast, device

_TOKEN_BUDGET = {"cpu": 1024, "cuda": 16384}

# Loading reports tensors a frozen encoder does not use; ours is the progress worth showing.
logging.set_verbosity_error()
logging.disable_progress_bar()


class Transformer:
    """The reference the exported graph is checked against, and what heads are trained on."""

    def __init__(self, checkpoint: Checkpoint, max_tokens: int, layer: int | None = None) -> None:
        checkpoint.check_length(max_tokens)
        self.device = device()
        try:
            self.model = AutoModel.from_pretrained(
                checkpoint.directory,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,  # unset, transformers would ask, and take "y" for consent
                dtype=torch.float32,
            )
        except Exception as error:  # a damaged file, an unknown family: they share no base
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise BackboneError(f"{checkpoint.name} cannot be loaded: {reason}") from error
        self.model.eval().requires_grad_(False).to(self.device)
        self.checkpoint, self.max_tokens = checkpoint, max_tokens
        self.layer = self._checked(self.model.config.num_hidden_layers if layer is None else layer)
        self.hidden_size: int = self.model.config.hidden_size
        self._tokenizer = Tokenizer(checkpoint.tokenizer, max_tokens)

    def at(self, layer: int) -> "Transformer":
        """The same backbone, in the same memory, read at another layer."""
        other = copy(self)
        other.layer = self._checked(layer)
        return other

    def _checked(self, layer: int) -> int:
        depth = self.model.config.num_hidden_layers
        if layer > depth:
            raise BackboneError(
                f"{self.checkpoint.name} has {depth} layers, so layer {layer} is none of them."
            )
        return layer

    def encode(self, sentences: Sequence[str], exact: bool = False) -> TokenVectors:
        """The vectors of every token of every sentence, special tokens included."""
        return self._encode(sentences, [self.layer], exact)[0]

    def encode_layers(self, sentences: Sequence[str], layers: Sequence[int]) -> list[TokenVectors]:
        """The vectors of several layers, in one pass."""
        return self._encode(sentences, layers, exact=False)

    @torch.inference_mode()
    def _encode(
        self, sentences: Sequence[str], layers: Sequence[int], exact: bool
    ) -> list[TokenVectors]:
        """Run every sentence, those of similar length together, and put them back in order."""
        tokens = self._tokenizer(sentences)
        lengths = np.array([len(text.ids) for text in tokens], np.int32)
        ends = np.cumsum(lengths)
        shape = (len(layers), lengths.sum(), self.hidden_size)
        vectors = np.empty(shape, np.float32)  # [layers, T, H]
        for batch in batches(lengths.tolist(), _TOKEN_BUDGET[self.device.type]):
            with nullcontext() if exact else autocast(self.device):
                states = self._run([tokens[i].ids for i in batch])
            for place, layer in enumerate(layers):
                found = states[layer].float().cpu().numpy()  # [B, S, H]
                for index, sentence in zip(batch, found, strict=True):
                    span = slice(ends[index] - lengths[index], ends[index])
                    vectors[place, span] = sentence[: lengths[index]]
        ids = np.concatenate([np.array(text.ids, np.int32) for text in tokens])
        cut = sum(text.truncated for text in tokens)
        return [TokenVectors(layer, ids, lengths, cut) for layer in vectors]

    def _run(self, batch: list[list[int]]) -> tuple[Tensor, ...]:
        """The states of every layer, [B, S, H] each."""
        ids = torch.zeros(len(batch), max(map(len, batch)), dtype=torch.long)  # [B, S]
        mask = torch.zeros_like(ids)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens)] = torch.tensor(tokens)
            mask[row, : len(tokens)] = 1
        output = self.model(
            input_ids=ids.to(self.device),
            attention_mask=mask.to(self.device),
            output_hidden_states=True,
        )
        states: tuple[Tensor, ...] = output.hidden_states
        return states
