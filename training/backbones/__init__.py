"""Frozen backbones behind one interface: sentences in, token vectors out."""

from collections.abc import Callable, Sequence
from typing import Protocol

from lattemix.build.backbones import Checkpoint, TokenVectors

Advance = Callable[[int], object]  # advances a progress bar by a number of sentences


class Backbone(Protocol):
    """A frozen encoder of tokens, on which a head can be trained."""

    checkpoint: Checkpoint
    max_tokens: int
    layer: int
    hidden_size: int

    def encode(
        self, sentences: Sequence[str], exact: bool = False, advance: Advance | None = None
    ) -> TokenVectors:
        """The float32 vectors of all tokens, special tokens included.

        `exact` also computes in float32 on a GPU. `advance` is called after each batch with its
        number of sentences.
        """
        ...

    def at(self, layer: int) -> "Backbone":
        """The same backbone, sharing its weights, read at another layer."""
        ...

    def encode_layers(self, sentences: Sequence[str], layers: Sequence[int]) -> list[TokenVectors]:
        """The vectors of several layers, in one pass."""
        ...


def check(checkpoint: Checkpoint, max_tokens: int, layer: int | None = None) -> None:
    """Reject what `load` would reject, as far as the config shows, without loading weights."""
    if checkpoint.is_static:
        from training.backbones.static import check_layer

        check_layer(checkpoint, layer)
    else:
        from training.backbones.transformer import check

        check(checkpoint, max_tokens, layer)


def load(checkpoint: Checkpoint, max_tokens: int, layer: int | None = None) -> Backbone:
    """Load a transformer or static vectors, to read one layer; by default the last."""
    if checkpoint.is_static:
        from training.backbones.static import StaticVectors

        return StaticVectors(checkpoint, max_tokens, layer)
    from training.backbones.transformer import Transformer

    return Transformer(checkpoint, max_tokens, layer)
