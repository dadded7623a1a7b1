"""How alike two mixtures are. Higher is always more similar."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from model_store import LatteMixError, Metric

Mixtures = NDArray[np.float32]  # [N, L, C]: N sentences, L distributions over C classes
Scores = NDArray[np.float64]  # [N]


class MetricError(LatteMixError):
    """The metric asked for needs something this model does not have."""


def cosine(a: Mixtures, b: Mixtures) -> Scores:
    """Cosine of the flattened mixtures: in [0, 1], since probabilities are not negative."""
    return _cosine(_flat(a), _flat(b))


def js(a: Mixtures, b: Mixtures) -> Scores:
    """1 - Jensen-Shannon divergence in bits, averaged over the latent dims: in [0, 1]."""
    p, q = a.astype(np.float64), b.astype(np.float64)
    divergence: NDArray[np.float64] = (
        _entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2
    )  # [N, L]
    scores: Scores = 1 - divergence.mean(axis=-1).clip(0, 1)
    return scores


def l2(a: Mixtures, b: Mixtures) -> Scores:
    """Minus the Euclidean distance of the flattened mixtures: in [-sqrt(2L), 0]."""
    distance: Scores = np.linalg.norm(_flat(a) - _flat(b), axis=-1)
    return 0 - distance  # not -distance: a zero would become -0


def bhattacharyya(a: Mixtures, b: Mixtures) -> Scores:
    """Bhattacharyya coefficient, sum of sqrt(p q), averaged over the latent dims: in [0, 1]."""
    coefficient: Scores = _dot(np.sqrt(_flat(a)), np.sqrt(_flat(b))) / a.shape[-2]
    return coefficient.clip(0, 1)


def centred(a: Mixtures, b: Mixtures, centre: NDArray[np.float32]) -> Scores:
    """Cosine of sqrt(mixture) - centre: in [-1, 1], near 0 for unrelated sentences.

    `centre` [L, C] is the mean of sqrt(mixture) over the training sentences, what every sentence
    has in common and so says nothing about two of them.
    """
    shift = centre.astype(np.float64).ravel()
    return _cosine(np.sqrt(_flat(a)) - shift, np.sqrt(_flat(b)) - shift)


_SIMPLE: dict[str, Callable[[Mixtures, Mixtures], Scores]] = {
    "cosine": cosine,
    "js": js,
    "l2": l2,
    "bhattacharyya": bhattacharyya,
}


def similarity(
    metric: Metric, a: Mixtures, b: Mixtures, centre: NDArray[np.float32] | None = None
) -> Scores:
    """Similarity of `a[i]` and `b[i]` for every i, by the metric's name."""
    if metric != "centred":
        return _SIMPLE[metric](a, b)
    if centre is None:
        raise MetricError(
            "Metric 'centred' needs a model that carries a centre; this one does not."
        )
    return centred(a, b, centre)


def _flat(mixtures: Mixtures) -> NDArray[np.float64]:
    return mixtures.reshape(len(mixtures), -1).astype(np.float64)  # [N, L*C]


def _dot(a: NDArray[np.float64], b: NDArray[np.float64]) -> Scores:
    product: Scores = np.einsum("nd,nd->n", a, b)
    return product


def _cosine(a: NDArray[np.float64], b: NDArray[np.float64]) -> Scores:
    """Cosine of each two rows; 0 where one of them is the zero vector, which has no direction."""
    norms = np.sqrt(_dot(a, a) * _dot(b, b))
    scores = np.divide(_dot(a, b), norms, out=np.zeros_like(norms), where=norms > 0)
    return scores.clip(-1, 1)


def _entropy(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Entropy in bits over the last axis, with 0 log 0 = 0."""
    logarithm = np.log2(p, out=np.zeros_like(p), where=p > 0)
    entropy: NDArray[np.float64] = -(p * logarithm).sum(axis=-1)
    return entropy
