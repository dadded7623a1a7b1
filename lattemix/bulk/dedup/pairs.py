"""Pairs of texts and their scores."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Pairs:
    """Pairs of text ids, left < right, and their scores: [P] each."""

    left: Ids
    right: Ids
    scores: Floats

    def __len__(self) -> int:
        return len(self.left)

    def where(self, chosen: Mask) -> "Pairs":
        """Return some of the pairs."""
        return Pairs(self.left[chosen], self.right[chosen], self.scores[chosen])


_NONE = Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float32))


def join(parts: Sequence[Pairs]) -> Pairs:
    """Return the distinct pairs of several lists, in order of their ids."""
    columns = ((part.left, part.right, part.scores) for part in (_NONE, *parts))
    left, right, scores = (np.concatenate(column) for column in zip(*columns, strict=True))
    order = np.lexsort((right, left))
    left, right, scores = left[order], right[order], scores[order]
    repeated = (left[1:] == left[:-1]) & (right[1:] == right[:-1])
    first = np.concatenate([[True], ~repeated])[: len(left)]
    return Pairs(left[first], right[first], scores[first])
