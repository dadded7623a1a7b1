"""Similarity of extreme mixtures: bounds, symmetry and invariance."""

from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from lattemix.similarity import Mixtures, matrix, similarity
from model_store import Metric

METRICS: tuple[Metric, ...] = get_args(Metric)
every_metric = pytest.mark.parametrize("metric", METRICS)
SMALLEST = np.float32(2**-149)  # positive denormal


def one_hot(count: int, classes: int, seed: int) -> np.ndarray:
    return np.eye(classes)[np.random.default_rng(seed).integers(classes, size=count)]


def extreme(kind: str, count: int, classes: int, seed: int) -> np.ndarray:
    """Extreme distributions [count, classes]: uniform, one-hot, or of every magnitude."""
    rng = np.random.default_rng(seed)
    match kind:
        case "uniform":
            return np.full((count, classes), 1 / classes)
        case "one-hot":
            return one_hot(count, classes, seed)
        case "underflow":  # softmax of logits so far apart that it underflows
            logits = rng.normal(size=(count, classes)) * 100
            odds = np.exp((logits - logits.max(axis=-1, keepdims=True)).astype(np.float32))
            return odds / odds.sum(axis=-1, keepdims=True)
        case "denormal":
            return np.maximum(one_hot(count, classes, seed), SMALLEST)
        case _:  # every magnitude
            odds = 10 ** rng.uniform(-44, 0, (count, classes))
            return odds / odds.sum(axis=-1, keepdims=True)


KINDS = ["uniform", "one-hot", "underflow", "denormal", "any"]


@st.composite
def groups(draw: st.DrawFn, sides: int = 2) -> list[Mixtures]:
    """Mixtures of one shape, with a kind drawn for every latent dim."""
    count, latents = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    classes = draw(st.integers(2, 24))
    result = []
    for _ in range(sides):
        chosen = draw(st.lists(st.sampled_from(KINDS), min_size=latents, max_size=latents))
        seed = draw(st.integers(0, 2**32 - 1))
        dims = [extreme(kind, count, classes, seed + i) for i, kind in enumerate(chosen)]
        result.append(np.stack(dims, axis=1).astype(np.float32))
    return result


def centre_of(a: Mixtures) -> np.ndarray:
    """A centre equal to no sentence, different in every dim and class."""
    return np.linspace(0.05, 0.35, a[0].size, dtype=np.float32).reshape(a[0].shape)


def shuffled(a: Mixtures, seed: int) -> Mixtures:
    """Permute the latent dims, and the classes within each."""
    rng = np.random.default_rng(seed)
    a = a[..., rng.permutation(a.shape[-2]), :]
    order = np.argsort(rng.random(a.shape[-2:]), axis=-1)
    return np.take_along_axis(a, np.broadcast_to(order, a.shape), axis=-1)


@every_metric
@given(pair=groups(), seed=st.integers(0, 2**32 - 1))
def test_similarity_is_invariant_to_the_order_of_dims_and_classes(
    metric: Metric, pair: list[Mixtures], seed: int
) -> None:
    (a, b), centre = pair, centre_of(pair[0])
    x, y, shuffled_centre = (shuffled(part, seed) for part in (a, b, centre))
    expected = similarity(metric, a, b, centre)
    # js sums in float32, so the order changes its last digits.
    np.testing.assert_allclose(
        similarity(metric, x, y, shuffled_centre), expected, rtol=0, atol=1e-6
    )
    np.testing.assert_allclose(
        matrix(metric, x, y, shuffled_centre), matrix(metric, a, b, centre), rtol=0, atol=2e-6
    )


@every_metric
@given(pair=groups())
def test_similarity_of_extremes_is_bounded_and_symmetric(
    metric: Metric, pair: list[Mixtures]
) -> None:
    (a, b), centre = pair, centre_of(pair[0])
    lowest = -np.sqrt(2 * a.shape[1]) - 1e-6
    low, high = {"centred": (-1, 1), "l2": (lowest, 0)}.get(metric, (0, 1))
    pairs, table = similarity(metric, a, b, centre), matrix(metric, a, b, centre)
    for scores in (pairs, table):
        assert np.isfinite(scores).all()
        assert ((low <= scores) & (scores <= high)).all()
    np.testing.assert_allclose(pairs, similarity(metric, b, a, centre), rtol=0, atol=1e-12)
    np.testing.assert_allclose(table, matrix(metric, b, a, centre).T, rtol=0, atol=1e-6)
    np.testing.assert_allclose(table.diagonal(), pairs, rtol=0, atol=1e-6)


@every_metric
@given(pair=groups(sides=1))
def test_similarity_of_extremes_to_themselves_is_the_maximum(
    metric: Metric, pair: list[Mixtures]
) -> None:
    (a,) = pair
    best = 0 if metric == "l2" else 1
    scores = similarity(metric, a, a.copy(), centre_of(a))
    np.testing.assert_allclose(scores, best, rtol=0, atol=1e-6)
    table = matrix(metric, a, a.copy(), centre_of(a))
    np.testing.assert_allclose(table.diagonal(), best, rtol=0, atol=1e-6)


@given(three=groups(sides=3))
def test_distances_obey_the_triangle_inequality(three: list[Mixtures]) -> None:
    def distance(metric: Metric, x: Mixtures, y: Mixtures) -> np.ndarray:
        scores = similarity(metric, x, y)
        return np.sqrt(1 - scores) if metric == "js" else -scores

    a, b, c = three
    metrics: tuple[Metric, ...] = ("js", "l2")
    for metric in metrics:
        direct = distance(metric, a, c)
        # The error of a score is up to 1e-7; of its root, near 0, more.
        tolerance = 1e-3 if metric == "js" else 1e-6
        assert (direct <= distance(metric, a, b) + distance(metric, b, c) + tolerance).all()


@given(pair=groups())
def test_disjoint_mixtures_have_similarity_0(pair: list[Mixtures]) -> None:
    (a, b) = pair
    zeros = np.zeros_like(a)
    left, right = np.concatenate([a, zeros], axis=-1), np.concatenate([zeros, b], axis=-1)
    metrics: tuple[Metric, ...] = ("cosine", "bhattacharyya", "js")
    for metric in metrics:
        np.testing.assert_allclose(similarity(metric, left, right), 0, rtol=0, atol=1e-6)
        np.testing.assert_allclose(matrix(metric, left, right), 0, rtol=0, atol=2e-6)


# Not centred: the mixture between may be the centre itself, with similarity 0 to all.
@pytest.mark.parametrize("metric", [metric for metric in METRICS if metric != "centred"])
@given(
    pair=groups(),
    share=arrays(np.float32, (4,), elements=st.floats(0, 1, width=32)),
)
def test_mixture_between_two_is_more_similar_than_they_are(
    metric: Metric, pair: list[Mixtures], share: np.ndarray
) -> None:
    a, b = pair
    part = share[: len(a), None, None]
    between = (part * a + (1 - part) * b).astype(np.float32)
    assert (similarity(metric, a, between) >= similarity(metric, a, b) - 1e-6).all()
