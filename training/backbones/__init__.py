"""Frozen backbones behind one small interface: sentences in, token vectors out."""

from collections.abc import Callable, Sequence
from typing import Protocol

from lattemix.build.backbones import BackboneError, Checkpoint, TokenVectors, open_backbone

__all__ = [
    "Advance",
    "Backbone",
    "BackboneError",
    "Checkpoint",
    "TokenVectors",
    "check",
    "load",
    "open_backbone",
]

Advance = Callable[[int], object]  # reports progress


class Backbone(Protocol):
    """A frozen encoder of tokens. Whatever implements this can have a head trained on it."""

    checkpoint: Checkpoint
    max_tokens: int
    layer: int
    hidden_size: int

    def encode(
        self, sentences: Sequence[str], exact: bool = False, advance: Advance | None = None
    ) -> TokenVectors:
        """The vectors of every token of every sentence, special tokens included.

        They come as float32; only `exact` ones were also computed so on a GPU. `advance` is called
        with the number of sentences of every batch that is encoded.
        """
        ...

    def at(self, layer: int) -> "Backbone":
        """The same backbone, in the same memory, read at another layer."""
        ...

    def encode_layers(self, sentences: Sequence[str], layers: Sequence[int]) -> list[TokenVectors]:
        """The vectors of several layers, in one pass."""
        ...


def check(checkpoint: Checkpoint, max_tokens: int, layer: int | None = None) -> None:
    """Refuse what `load` would refuse, as far as the config tells, without loading weights."""
    if checkpoint.is_static:
        from training.backbones.static import check_layer

        check_layer(checkpoint, layer or 0)
    else:
        from training.backbones.transformer import check

        check(checkpoint, max_tokens, layer)


def load(checkpoint: Checkpoint, max_tokens: int, layer: int | None = None) -> Backbone:
    """Load a checkpoint, transformer or static vectors, to read one of its layers."""
    if checkpoint.is_static:
        from training.backbones.static import StaticVectors

        return StaticVectors(checkpoint, max_tokens, layer)
    from training.backbones.transformer import Transformer

    return Transformer(checkpoint, max_tokens, layer)
