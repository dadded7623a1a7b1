"""A frozen Hugging Face encoder: sentences in, the token vectors of one layer out."""

from collections.abc import Sequence
from contextlib import nullcontext
from copy import copy

import numpy as np
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel
from transformers.utils import logging

from lattemix.build.backbones import BackboneError, Checkpoint, TokenVectors
from lattemix.build.backbones.checkpoint import unsupported
from lattemix.encoder import batches
from lattemix.tokenization import Tokenizer
from training.backbones import Advance
from training.device import autocast, device

# By default transformers asks on the terminal whether to run code that comes with the model.
_LOCAL = {"local_files_only": True, "trust_remote_code": False}
_TOKEN_BUDGET = {"cpu": 1024, "cuda": 16384}

# Loading reports unused tensors, which are expected here, and shows a progress bar of its own.
logging.set_verbosity_error()
logging.disable_progress_bar()


class Transformer:
    """A torch model: heads are trained on its outputs, and exported graphs must match them."""

    def __init__(self, checkpoint: Checkpoint, max_tokens: int, layer: int | None = None) -> None:
        self.depth, self.hidden_size = check(checkpoint, max_tokens, layer)
        self.device = device()
        try:
            self.model = AutoModel.from_pretrained(
                checkpoint.directory, use_safetensors=True, dtype=torch.float32, **_LOCAL
            )
        except (
            Exception
        ) as error:  # errors of damaged files and unknown families share no base class
            raise _unloadable(checkpoint, error) from error
        if self.model.main_input_name != "input_ids":  # a model of images or audio
            raise _unsupported(checkpoint, "not a text encoder")
        self.model.eval().requires_grad_(False).to(self.device)
        self.checkpoint, self.max_tokens = checkpoint, max_tokens
        self.layer = self.depth if layer is None else layer
        self._tokenizer = Tokenizer(checkpoint.tokenizer, max_tokens)

    def at(self, layer: int) -> "Transformer":
        """The same backbone, sharing its weights, read at another layer."""
        _check_layer(self.checkpoint, layer, self.depth)
        view = copy(self)
        view.layer = layer
        return view

    def encode(
        self, sentences: Sequence[str], exact: bool = False, advance: Advance | None = None
    ) -> TokenVectors:
        """The vectors of all tokens, special tokens included."""
        return self._encode(sentences, [self.layer], exact, advance)[0]

    def encode_layers(self, sentences: Sequence[str], layers: Sequence[int]) -> list[TokenVectors]:
        """The vectors of several layers, in one pass."""
        return self._encode(sentences, layers, exact=False)

    @torch.inference_mode()
    def _encode(
        self,
        sentences: Sequence[str],
        layers: Sequence[int],
        exact: bool,
        advance: Advance | None = None,
    ) -> list[TokenVectors]:
        """Encode in batches of similar lengths; return the sentences in their original order."""
        tokens = self._tokenizer(sentences)
        lengths = np.array([len(text.ids) for text in tokens], np.int32)
        ends = np.cumsum(lengths)
        shape = (len(layers), lengths.sum(), self.hidden_size)
        vectors = np.empty(shape, np.float32)  # [layers, T, H]
        for batch in batches(lengths.tolist(), _TOKEN_BUDGET[self.device.type]):
            with nullcontext() if exact else autocast(self.device):
                states = self.hidden_states([tokens[i].ids for i in batch])
            for output, layer in zip(vectors, layers, strict=True):
                padded = states[layer].float().cpu().numpy()  # [B, S, H]
                for index, sentence in zip(batch, padded, strict=True):
                    length = lengths[index]
                    output[ends[index] - length : ends[index]] = sentence[:length]
            if advance:
                advance(len(batch))
        ids = np.concatenate([np.array(text.ids, np.int32) for text in tokens])
        truncated = sum(text.truncated for text in tokens)
        return [TokenVectors(layer, ids, lengths, truncated) for layer in vectors]

    def hidden_states(self, batch: Sequence[list[int]]) -> tuple[Tensor, ...]:
        """The hidden states of every layer for a batch of token ids, [B, S, H] each."""
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


def check(checkpoint: Checkpoint, max_tokens: int, layer: int | None) -> tuple[int, int]:
    """Return the number of layers and the width; reject what the config shows to be unsupported."""
    checkpoint.check_length(max_tokens)
    try:
        config = AutoConfig.from_pretrained(checkpoint.directory, **_LOCAL)
    except Exception as error:  # as above
        raise _unloadable(checkpoint, error) from error
    if config.is_encoder_decoder:
        raise _unsupported(checkpoint, "an encoder-decoder")
    depth, width = (getattr(config, name, None) for name in ("num_hidden_layers", "hidden_size"))
    if not (isinstance(depth, int) and isinstance(width, int)):
        raise _unsupported(checkpoint, "not a text encoder")
    _check_layer(checkpoint, layer or 0, depth)
    return depth, width


def _check_layer(checkpoint: Checkpoint, layer: int, depth: int) -> None:
    if layer > depth:
        raise BackboneError(f"{checkpoint.name} has {depth} layers, so there is no layer {layer}.")


def _unsupported(checkpoint: Checkpoint, kind: str) -> BackboneError:
    return unsupported(checkpoint.name, checkpoint.config["model_type"], kind)


def _unloadable(checkpoint: Checkpoint, error: Exception) -> BackboneError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    return BackboneError(f"{checkpoint.name} cannot be loaded: {reason}")
