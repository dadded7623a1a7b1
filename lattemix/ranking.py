"""Order scores: the best first, ties in their original order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.floating[Any]]


def order(scores: Scores) -> NDArray[np.intp]:
    """Indices of scores [N], highest first."""
    return np.argsort(-scores, kind="stable")


def pairs_above(table: Scores, threshold: float | None = None) -> tuple[NDArray[np.intp], Scores]:
    """Pairs i < j of a similarity table [N, N] that reach the threshold, highest first.

    Returns:
        The pairs [P, 2] and their scores [P].
    """
    left, right = np.triu_indices(len(table), k=1)
    scores = table[left, right]
    if threshold is not None:
        (kept,) = np.nonzero(scores >= threshold)
        left, right, scores = left[kept], right[kept], scores[kept]
    best = order(scores)
    return np.stack([left[best], right[best]], axis=1), scores[best]
