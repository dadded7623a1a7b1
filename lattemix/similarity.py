"""Similarity of mixtures, in pairs or all with all. Higher is always more similar.

A metric is a vector per sentence (`_embed`) and a rule that compares two vectors (`_RULES`).
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from lattemix.errors import DimensionsError
from model_store import LatteMixError, Metric

Mixtures = NDArray[np.float32]  # [N, L, C]: N sentences, L distributions over C classes
Centre = NDArray[np.float32]  # [L, C], subtracted from sqrt(mixture) by `centred`
Vectors = NDArray[np.floating[Any]]  # [N, D]
Scores = NDArray[np.float64]  # [N]
Float = TypeVar("Float", np.float32, np.float64)

# Sentences per block in `matrix`: larger blocks reuse vectors more often. 1024 need 60 to 90 MB
# beside the result for 128 dims of 20 classes.
_BLOCK_ROWS = 1024
# Bytes of vectors per block of pairs: malloc gets larger arrays from the system, page by page, each
# time, which takes longer than the arithmetic.
_PAIR_BYTES = 131_072


class MetricError(LatteMixError):
    """The metric is unknown, or the model does not support it."""


def check(metric: Metric, centre: object | None) -> None:
    """Raise `MetricError` if the metric is unknown or needs a centre that the model lacks."""
    if metric not in _RULES:
        raise MetricError(f"Unknown metric {metric!r}: choose among {', '.join(_RULES)}.")
    if metric == "centred" and centre is None:
        raise MetricError(
            "Metric 'centred' needs a model that carries a centre; this one does not."
        )


def similarity(metric: Metric, a: Mixtures, b: Mixtures, centre: Centre | None = None) -> Scores:
    """Return the similarity of `a[i]` and `b[i]` for every i.

    - cosine: of the flattened mixtures, in [0, 1], since probabilities are not negative.
    - bhattacharyya: sum of sqrt(p q), averaged over the latent dims, in [0, 1].
    - centred: cosine of sqrt(mixture) - centre, in [-1, 1], near 0 for unrelated sentences. The
      centre is what all sentences have in common, or the uniform distribution's.
    - l2: minus the Euclidean distance of the flattened mixtures, in [-sqrt(2L), 0].
    - js: 1 - Jensen-Shannon divergence in bits, averaged over the latent dims, in [0, 1].
    """
    if len(a) != len(b):
        raise ValueError(f"{len(a)} sentences cannot be paired with {len(b)}.")
    return _pairs(metric, a, b, centre)


def matrix(
    metric: Metric, a: Mixtures, b: Mixtures, centre: Centre | None = None
) -> NDArray[np.float32]:
    """Return the similarity of `a[i]` and `b[j]` for every i and j: [N, M].

    Half the work if `b is a`.
    """
    if len(a) == 1 or len(b) == 1:
        return _pairs(metric, a, b, centre).astype(np.float32).reshape(len(a), len(b))
    rule, scores = _RULES[metric], np.empty((len(a), len(b)), np.float32)
    for rows in _blocks(len(a), _BLOCK_ROWS):
        x = _embed(metric, a[rows], centre)
        for columns in _blocks(len(b), _BLOCK_ROWS):
            if a is b and columns.start < rows.start:
                scores[rows, columns] = scores[columns, rows].T
                continue
            y = x if a is b and columns == rows else _embed(metric, b[columns], centre)
            scores[rows, columns] = rule.table(x, y).clip(rule.low, rule.high)
    return scores


def vectors(
    metric: Metric, mixtures: Mixtures, centre: Centre | None = None, dims: int | None = None
) -> Vectors:
    """Return unit vectors [N, L*C] whose dot product is the metric.

    With `dims` they are [N, dims*C], of the first latent dims only.

    `js` and `l2` are not dot products and get the vectors of `bhattacharyya`, the closest one. On
    pairs of sentences its rank correlation is above 0.999 with `js` and about 0.9 with `l2`.
    """
    is_dot_product = _RULES[metric].pairs is _dots
    prefix = None if centre is None else centre[:dims]
    return _embed(metric if is_dot_product else "bhattacharyya", mixtures[:, :dims], prefix)


def score_range(metric: Metric, latent_dims: int) -> tuple[float, float]:
    """Return the lowest and the highest possible score of a metric."""
    rule = _RULES[metric]
    return (-math.sqrt(2 * latent_dims) if metric == "l2" else rule.low), rule.high


def prefix_dims(dimensions: int | None, latent_dims: int, classes: int) -> int:
    """Return the number of latent dims in a vector of `dimensions` numbers; None: all.

    Raises:
        DimensionsError: a vector cannot have this many numbers.
    """
    if dimensions is None:
        return latent_dims
    dims, remainder = divmod(dimensions, classes)
    if remainder or not 1 <= dims <= latent_dims:
        raise DimensionsError(dimensions, latent_dims, classes)
    return dims


def _pairs(metric: Metric, a: Mixtures, b: Mixtures, centre: Centre | None) -> Scores:
    """Similarity of `a[i]` and `b[i]`; a single sentence is paired with every other one."""
    rule, scores = _RULES[metric], np.empty(min(len(a), len(b)) and max(len(a), len(b)))
    x, y = (_embed(metric, side, centre) if len(side) == 1 else None for side in (a, b))
    block_size = max(1, _PAIR_BYTES // (8 * a.shape[1] * a.shape[2]))
    for rows in _blocks(len(scores), block_size):
        scores[rows] = rule.pairs(
            _embed(metric, a[rows], centre) if x is None else x,
            _embed(metric, b[rows], centre) if y is None else y,
        )
    return scores.clip(rule.low, rule.high)


def _blocks(length: int, size: int) -> Iterator[slice]:
    return (slice(start, start + size) for start in range(0, length, size))


def _embed(metric: Metric, mixtures: Mixtures, centre: Centre | None) -> Vectors:
    """Vector of each sentence, [N, L*C]; for js the mixture itself, [N, L, C]."""
    if metric == "js":
        return mixtures.astype(np.float32, copy=False)
    latents = mixtures.shape[1]
    flat = _flat(mixtures).astype(np.float64)  # a copy, changed in place
    match metric:
        case "cosine":
            return _unit(flat)
        case "bhattacharyya":
            flat /= latents
            return np.sqrt(flat, out=flat)
        case "centred":
            check(metric, centre)
            assert centre is not None
            np.sqrt(flat, out=flat)
            flat -= centre.ravel()
            return _unit(flat)
        case "l2":
            # Round to few enough bits (22 for 128 dims) that float64 sums of squares are exact: the
            # distance does not depend on how it is computed, and a sentence's to itself is 0.
            scale = 2.0 ** ((51 - (latents - 1).bit_length()) // 2)
            flat *= scale
            np.rint(flat, out=flat)
            flat /= scale
            return flat


def _flat(mixtures: NDArray[Float]) -> NDArray[Float]:
    count, latents, classes = mixtures.shape
    return mixtures.reshape(count, latents * classes)


def _unit(rows: Vectors) -> Vectors:
    """Normalise rows in place; a zero vector has no direction and stays zero."""
    norms = np.sqrt(np.vecdot(rows, rows))[:, None]
    rows /= np.where(norms > 0, norms, 1)
    return rows


def _dots(x: Vectors, y: Vectors) -> Scores:
    dots: Scores = np.vecdot(x, y)
    return dots


def _dot_table(x: Vectors, y: Vectors) -> Vectors:
    table: Vectors = x @ y.T
    return table


def _l2(x: Vectors, y: Vectors) -> Scores:
    distances: Scores = np.linalg.norm(x - y, axis=-1)
    return 0 - distances  # not -distances: a zero would become -0


def _l2_table(x: Vectors, y: Vectors) -> Vectors:
    return 0 - np.sqrt(_squares(x, y))


def _js(p: Vectors, q: Vectors) -> Scores:
    # With f(s) = s log s, the divergence is half of (f(2p) + f(2q)) / 2 - f(p + q), Jensen's gap of
    # the convex f. It is 0 for equal mixtures even if their probabilities do not sum to 1.
    def f(s: Vectors) -> Vectors:
        logarithm = np.maximum(s, _TINY)  # 0 log 0 = 0
        np.log(logarithm, out=logarithm)  # numpy's log2 takes three times as long
        logarithm *= s
        return logarithm

    gap = (f(2 * p) + f(2 * q)) / 2 - f(p + q)
    nats = gap.sum(axis=(1, 2), dtype=np.float64) / 2  # sum over the latent dims
    scores: Scores = 1 - nats / (np.log(2) * p.shape[1])
    return scores


def _js_table(p: Vectors, q: Vectors) -> Vectors:
    # A logarithm per class and pair is slow. But 1/s is the integral of exp(-ts) over t > 0, so
    # s log s, up to a linear term, is the integral of exp(-ts) / t^2, and the divergence that of
    # (exp(-tp) - exp(-tq))^2 / (4 t^2): squared distances, which a matrix product computes.
    divergence = np.zeros((len(p), len(q)))
    for t, weight in _QUADRATURE:
        x = _saturation(p, t)
        divergence += weight * _squares(x, x if q is p else _saturation(q, t))
    divergence /= p.shape[1]
    divergence[divergence < _JS_ERROR] = 0  # equal mixtures get similarity 1
    table: Vectors = 1 - divergence
    return table


def _quadrature(nodes: int) -> list[tuple[float, float]]:
    """Nodes t and weights of the integral in `_js_table`.

    Gauss-Legendre over x in (0, 1) with t = 100 x / (1 - x)^4: probabilities have any magnitude,
    and only a large t distinguishes small ones. With 24 nodes the error of the divergence is below
    2e-7 for 20 classes and 1e-6 for 100.
    """
    x, width = np.polynomial.legendre.leggauss(nodes)
    x, width = (x + 1) / 2, width / 2
    t = 100 * x / (1 - x) ** 4
    slope = 100 * (1 + 3 * x) / (1 - x) ** 5  # dt / dx
    weight = width * slope / (4 * np.log(2) * t**2)  # bits
    return list(zip(t.tolist(), weight.tolist(), strict=True))


_QUADRATURE = _quadrature(24)
_JS_ERROR = 1e-6
_TINY = np.finfo(np.float32).tiny


def _saturation(p: Vectors, t: float) -> NDArray[np.float32]:
    """1 - exp(-tp), [N, L*C]: same distances as exp(-tp), but more precise where tp is small."""
    out = _flat(p).astype(np.float32)
    out *= -t
    np.exp(out, out=out)
    return np.subtract(1, out, out=out)


def _squares(x: NDArray[Float], y: NDArray[Float]) -> NDArray[Float]:
    """Squared distance of every row of `x` to every row of `y`: [N, M]."""
    squares: NDArray[Float] = np.vecdot(x, x)[:, None] + np.vecdot(y, y)
    squares -= 2 * (x @ y.T)
    return squares


class _Rule(NamedTuple):
    """How to compare vectors, and the range of scores."""

    pairs: Callable[[Vectors, Vectors], Scores]  # row by row: [N]
    table: Callable[[Vectors, Vectors], Vectors]  # every row with every other: [N, M]
    low: float
    high: float


_RULES: dict[Metric, _Rule] = {
    "cosine": _Rule(_dots, _dot_table, 0, 1),
    "bhattacharyya": _Rule(_dots, _dot_table, 0, 1),
    "centred": _Rule(_dots, _dot_table, -1, 1),
    "l2": _Rule(_l2, _l2_table, -np.inf, 0),
    "js": _Rule(_js, _js_table, 0, 1),
}
