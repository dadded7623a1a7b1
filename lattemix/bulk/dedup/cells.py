"""Near neighbours among many vectors: cells around centroids, and products within them.

Vectors are projected, scaled to one byte per number, and assigned to their nearest cells. A vector
is compared with the members of these cells. Products of bytes are integers that float32 represents
exactly, so that candidates do not depend on threads, or on which worker compares which cell.
"""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lattemix.bulk.dedup.pairs import Floats, Ids, Mask

Bytes = NDArray[np.int8]  # [N, D]
Cells = NDArray[np.uint16]

DIMENSIONS = 256  # of projected vectors: products are exact up to 1,040
VISITS = 8  # nearest cells whose members a vector is compared with
NO_CELL = np.iinfo(np.uint16).max  # the cell of a text without a vector
_SINGLE_CELL = 4096  # as many vectors are compared all with all
_MAX_CELLS = 8192
_SAMPLE = 65_536  # vectors that the projection and the centroids are computed from
_ITERATIONS = 8
_BLOCK_PRODUCTS = 4_000_000  # computed at once: 16 MB
# Most matches of a vector in its own cell, and in each other cell that it visits. A vector with
# more is crowded: it is compared again when most of its matches have been dropped.
_OWN_MATCHES, _OTHER_MATCHES = 16, 4
ERROR = 0.005  # by which a projected score may be too low; we saw 0.0031 in 6,000 pairs


class Space(NamedTuple):
    """How vectors are projected, and the centroids of the cells."""

    projection: Floats  # [L*C, D]
    centroids: Bytes  # [K, D]

    def project(self, vectors: NDArray[np.floating]) -> Bytes:
        """Project unit vectors [N, L*C] to bytes [N, D]."""
        return _as_bytes(vectors.astype(np.float32, copy=False) @ self.projection)

    def nearest(self, projected: Bytes) -> Cells:
        """Return the nearest cells of projected vectors, the nearest first: [N, VISITS]."""
        return _nearest(projected, self.centroids, min(VISITS, len(self.centroids)))


def sample_ids(count: int) -> Ids:
    """Return the ids of the texts to compute a `Space` from, evenly spaced."""
    return np.unique(np.linspace(0, count - 1, min(count, _SAMPLE)).astype(np.int64))


def make_space(sample: Floats, count: int) -> Space:
    """Compute a space for `count` vectors from a sample of them, [S, L*C]."""
    projection = _principal_axes(sample)
    cells = 1 if count <= _SINGLE_CELL else min(math.isqrt(count), _MAX_CELLS)
    projected = _as_bytes(sample @ projection)
    nonzero = projected[projected.any(axis=1)]
    return Space(projection, _centroids(nonzero if len(nonzero) else projected[:1], cells))


def _principal_axes(sample: Floats) -> Floats:
    """Orthonormal axes that keep most of the sample's squared length: [L*C, D]."""
    if len(sample) < sample.shape[1]:  # faster for few vectors
        _, _, axes = np.linalg.svd(sample, full_matrices=False)  # most important first [S, L*C]
    else:
        axes = np.linalg.eigh(sample.T @ sample)[1].T[::-1]
    return np.ascontiguousarray(axes[:DIMENSIONS].T)


def _as_bytes(vectors: Floats) -> Bytes:
    """Scale each vector so that its largest absolute value is 127; zero stays zero."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    return np.rint(vectors * (127 / np.where(largest > 0, largest, 1))).astype(np.int8)


def _centroids(vectors: Bytes, cells: int) -> Bytes:
    """Spherical k-means."""
    rng = np.random.default_rng(0)
    centroids = vectors[rng.choice(len(vectors), min(cells, len(vectors)), replace=False)]
    for _ in range(_ITERATIONS if len(centroids) > 1 else 0):
        home = _nearest(vectors, centroids, 1)[:, 0]
        order = np.argsort(home, kind="stable")
        members, starts = np.unique(home[order], return_index=True)
        sums = np.add.reduceat(_unit(vectors[order]), starts, axis=0)
        centroids[members] = _as_bytes(sums)  # an empty cell keeps its centroid
    return centroids


def _nearest(vectors: Bytes, centroids: Bytes, count: int) -> Cells:
    scale = inverse_norms(centroids)
    centres = centroids.astype(np.float32).T
    nearest = np.empty((len(vectors), count), np.uint16)
    for rows in _blocks(len(vectors), len(centroids)):
        scores = vectors[rows].astype(np.float32) @ centres * scale
        best = np.argpartition(-scores, count - 1, axis=1)[:, :count]
        order = np.argsort(-np.take_along_axis(scores, best, 1), axis=1, kind="stable")
        nearest[rows] = np.take_along_axis(best, order, 1)
    return nearest


def inverse_norms(vectors: Bytes) -> Floats:
    """Return 1 / norm of each vector; 0 for a zero vector."""
    floats = vectors.astype(np.float32)
    squares: Floats = np.vecdot(floats, floats)
    inverse = np.zeros_like(squares)
    np.divide(1, np.sqrt(squares), out=inverse, where=squares > 0)
    return inverse


def _unit(vectors: Bytes) -> Floats:
    return vectors * inverse_norms(vectors)[:, None]


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    size = max(1, _BLOCK_PRODUCTS // max(columns, 1))
    return (slice(start, start + size) for start in range(0, rows, size))


class Index:
    """Which texts are in which cell, and which are compared with its members."""

    def __init__(self, nearest: Cells, active: Mask, visiting: Mask) -> None:
        """Index texts.

        Args:
            nearest: cells of each text, the nearest first: [N, VISITS].
            active: texts to compare [N].
            visiting: those of them to find matches for [N].
        """
        self.nearest, self.visiting = nearest, visiting
        self._members = _Lists(nearest[:, 0], active)
        self._visitors = [_Lists(column, visiting) for column in nearest.T]

    def members(self, cell: int) -> Ids:
        """Return the texts whose nearest cell this is."""
        return self._members.of(cell)

    def visitors(self, cell: int) -> tuple[Ids, Ids]:
        """Return the texts that are compared with the members: members, and others."""
        own, *others = (lists.of(cell) for lists in self._visitors)
        return own, np.concatenate([*others, np.empty(0, np.int64)])

    def sizes(self) -> Ids:
        """Return the number of members of each cell."""
        return np.bincount(self._members.cells)


class _Lists:
    """Texts by cell."""

    def __init__(self, cells: Cells, chosen: Mask) -> None:
        (texts,) = np.nonzero(chosen & (cells != NO_CELL))
        order = np.argsort(cells[texts], kind="stable")
        self._texts, self.cells = texts[order], cells[texts][order]

    def of(self, cell: int) -> Ids:
        start, stop = np.searchsorted(self.cells, [cell, cell + 1])
        return self._texts[start:stop]


class Matches(NamedTuple):
    """Pairs of texts that may be similar."""

    left: Ids  # [P]
    right: Ids  # [P], none equal to its left
    crowded: Ids  # texts with more matches than these [X]
    cutoffs: Floats  # largest possible score of the others [X]


# Which texts are compared: of ids [V, 1] and [1, M], returns a mask [V, M].
Comparable = Callable[[Ids, Ids], Mask]


def find_matches(
    vectors: Callable[[Ids], Bytes],
    index: Index,
    cell: int,
    floor: float,
    comparable: Comparable = np.not_equal,
) -> Matches:
    """Return the matches of a cell's members: all with a score of `floor` or more, and others."""
    members = index.members(cell)
    table = vectors(members)
    scale, columns = inverse_norms(table), table.astype(np.float32).T
    left, right, crowded, cutoffs = [], [], [], []
    for visitors, limit in zip(index.visitors(cell), (_OWN_MATCHES, _OTHER_MATCHES), strict=True):
        for block in _blocks(len(visitors), len(members)):
            texts = visitors[block]
            rows = vectors(texts)
            scores = rows.astype(np.float32) @ columns  # [V, M], exact
            scores *= scale
            scores *= inverse_norms(rows)[:, None]
            similar = scores >= floor - ERROR
            similar &= comparable(texts[:, None], members[None])  # others do not count as crowding
            full = similar.sum(axis=1) > limit
            similar[full], minima = _best(np.where(similar[full], scores[full], -np.inf), limit)
            crowded.append(texts[full])
            cutoffs.append(minima + np.float32(ERROR))
            i, j = np.nonzero(similar)
            left.append(texts[i])
            right.append(members[j])
    matches = Matches(
        left=np.concatenate([*left, members[:0]]),
        right=np.concatenate([*right, members[:0]]),
        crowded=np.concatenate([*crowded, members[:0]]),
        cutoffs=np.concatenate([*cutoffs, scale[:0]]),
    )
    repeated = _in_earlier_cell(matches, index, cell)
    return matches._replace(left=matches.left[~repeated], right=matches.right[~repeated])


def _best(scores: Floats, limit: int) -> tuple[Mask, Floats]:
    """Mark the highest scores of each row, and return the lowest of these."""
    marked = np.zeros(scores.shape, bool)
    if not len(scores):
        return marked, scores[:, :1].ravel()
    best = np.argpartition(-scores, limit - 1, axis=1)[:, :limit]
    np.put_along_axis(marked, best, True, axis=1)
    return marked, np.take_along_axis(scores, best, 1).min(axis=1)


def _in_earlier_cell(matches: Matches, index: Index, cell: int) -> Mask:
    """Mark the pairs that an earlier cell has, too: their texts visit each other's cells."""
    left, right = matches.left, matches.right
    home = index.nearest[left, 0]
    mutual = index.visiting[right] & (index.nearest[right] == home[:, None]).any(axis=1)
    repeated: Mask = mutual & (home < cell)
    return repeated
