"""Mixtures of texts and of their tokens, as an encoder returns them."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lattemix.tokenization import TokenSpan


@dataclass(frozen=True)
class Encoding:
    """Mixtures of a list of texts."""

    mixtures: NDArray[np.float32]  # [N, L, C]
    tokens: list[int]  # before truncation
    truncated: list[bool]


@dataclass(frozen=True)
class TokenEncoding:
    """Mixtures of the tokens of one text."""

    spans: list[TokenSpan]
    weights: NDArray[np.float32]  # [S], sum to 1
    mixtures: NDArray[np.float32]  # [S, L, C]
    tokens: int  # before truncation
    truncated: bool

    @cached_property
    def parts(self) -> NDArray[np.float64]:
        """Weighted token mixtures, which sum to the text's mixture: [S, L*C]."""
        flat = self.mixtures.reshape(len(self.mixtures), -1)
        return np.multiply(flat, self.weights[:, None], dtype=np.float64)

    @cached_property
    def mixture(self) -> NDArray[np.float32]:
        """The text's mixture: [L, C]."""
        total: NDArray[np.float64] = self.parts.sum(axis=0)
        return total.reshape(self.mixtures.shape[1:]).astype(np.float32)


def add_windows(
    mixtures: NDArray[np.float32],
    parts: Iterable[tuple[int, float]],
    windows: Iterable[NDArray[np.float32]],
) -> None:
    """Add windows' mixtures [L, C] to those of their texts [N, L, C].

    A text's mixture is the weighted average of its windows' mixtures.

    Args:
        mixtures: the texts' mixtures, 0 before the first window.
        parts: index of each window's text, and the window's share of it.
        windows: mixture of each window.
    """
    for (owner, share), window in zip(parts, windows, strict=True):
        if share == 1:
            mixtures[owner] = window
        else:
            mixtures[owner] += np.float32(share) * window
