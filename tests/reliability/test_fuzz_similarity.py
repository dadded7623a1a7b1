"""Similarities of extreme mixtures, and what must not matter to them."""

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
TINIEST = np.float32(2**-149)  # and next to it is 0


def one_hot(count: int, classes: int, seed: int) -> np.ndarray:
    return np.eye(classes)[np.random.default_rng(seed).integers(classes, size=count)]


def extreme(kind: str, count: int, classes: int, seed: int) -> np.ndarray:
    """Rows [count, classes] that are as sharp, as flat or as lopsided as can be."""
    rng = np.random.default_rng(seed)
    match kind:
        case "uniform":
            return np.full((count, classes), 1 / classes)
        case "one-hot":
            return one_hot(count, classes, seed)
        case "underflow":  # the softmax of logits that float32 cannot tell from certainty
            logits = rng.normal(size=(count, classes)) * 100
            odds = np.exp((logits - logits.max(axis=-1, keepdims=True)).astype(np.float32))
            return odds / odds.sum(axis=-1, keepdims=True)
        case "denormal":
            return np.maximum(one_hot(count, classes, seed), TINIEST)
        case _:  # of every magnitude
            odds = 10 ** rng.uniform(-44, 0, (count, classes))
            return odds / odds.sum(axis=-1, keepdims=True)


KINDS = ["uniform", "one-hot", "underflow", "denormal", "any"]


@st.composite
def groups(draw: st.DrawFn, sides: int = 2) -> list[Mixtures]:
    """Mixtures of one shape; every latent dim of every sentence is of a kind of its own."""
    count, latents = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    classes = draw(st.integers(2, 24))
    found = []
    for _ in range(sides):
        chosen = draw(st.lists(st.sampled_from(KINDS), min_size=latents, max_size=latents))
        seed = draw(st.integers(0, 2**32 - 1))
        dims = [extreme(kind, count, classes, seed + i) for i, kind in enumerate(chosen)]
        found.append(np.stack(dims, axis=1).astype(np.float32))
    return found


def centre_of(a: Mixtures) -> np.ndarray:
    """One that no sentence is at, and that differs in every dim and class."""
    return np.linspace(0.05, 0.35, a[0].size, dtype=np.float32).reshape(a[0].shape)


def shuffled(a: Mixtures, seed: int) -> Mixtures:
    """Latent dims in another order, and in each of them the classes."""
    rng = np.random.default_rng(seed)
    a = a[..., rng.permutation(a.shape[-2]), :]
    order = np.argsort(rng.random(a.shape[-2:]), axis=-1)
    return np.take_along_axis(a, np.broadcast_to(order, a.shape), axis=-1)


@every_metric
@given(pair=groups(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_dims_and_classes_does_not_matter(
    metric: Metric, pair: list[Mixtures], seed: int
) -> None:
    (a, b), centre = pair, centre_of(pair[0])
    x, y, moved = (shuffled(part, seed) for part in (a, b, centre))
    expected = similarity(metric, a, b, centre)
    # Sums in another order: js adds in float32, l2 rounds so that its sums are exact.
    np.testing.assert_allclose(similarity(metric, x, y, moved), expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(
        matrix(metric, x, y, moved), matrix(metric, a, b, centre), rtol=0, atol=2e-6
    )


@every_metric
@given(pair=groups())
def test_extremes_are_within_bounds_and_alike_both_ways(
    metric: Metric, pair: list[Mixtures]
) -> None:
    (a, b), centre = pair, centre_of(pair[0])
    farthest = -np.sqrt(2 * a.shape[1]) - 1e-6
    low, high = {"centred": (-1, 1), "l2": (farthest, 0)}.get(metric, (0, 1))
    there, table = similarity(metric, a, b, centre), matrix(metric, a, b, centre)
    for scores in (there, table):
        assert np.isfinite(scores).all()
        assert ((low <= scores) & (scores <= high)).all()
    np.testing.assert_allclose(there, similarity(metric, b, a, centre), rtol=0, atol=1e-12)
    np.testing.assert_allclose(table, matrix(metric, b, a, centre).T, rtol=0, atol=1e-6)
    np.testing.assert_allclose(table.diagonal(), there, rtol=0, atol=1e-6)


@every_metric
@given(pair=groups(sides=1))
def test_extremes_are_like_themselves(metric: Metric, pair: list[Mixtures]) -> None:
    (a,) = pair
    best = 0 if metric == "l2" else 1
    found = similarity(metric, a, a.copy(), centre_of(a))
    np.testing.assert_allclose(found, best, rtol=0, atol=1e-6)
    table = matrix(metric, a, a.copy(), centre_of(a))
    np.testing.assert_allclose(table.diagonal(), best, rtol=0, atol=1e-6)


@given(three=groups(sides=3))
def test_distances_obey_the_triangle_inequality(three: list[Mixtures]) -> None:
    def farther(metric: Metric, x: Mixtures, y: Mixtures) -> np.ndarray:
        scores = similarity(metric, x, y)
        return np.sqrt(1 - scores) if metric == "js" else -scores

    a, b, c = three
    metrics: tuple[Metric, ...] = ("js", "l2")
    for metric in metrics:
        direct = farther(metric, a, c)
        # A score is off by up to 1e-7; its root, near 0, by more.
        slack = 1e-3 if metric == "js" else 1e-6
        assert (direct <= farther(metric, a, b) + farther(metric, b, c) + slack).all()


@given(pair=groups())
def test_metrics_agree_on_what_has_nothing_in_common(pair: list[Mixtures]) -> None:
    (a, b) = pair
    nothing = np.zeros_like(a)
    left, right = np.concatenate([a, nothing], axis=-1), np.concatenate([nothing, b], axis=-1)
    metrics: tuple[Metric, ...] = ("cosine", "bhattacharyya", "js")
    for metric in metrics:
        np.testing.assert_allclose(similarity(metric, left, right), 0, rtol=0, atol=1e-6)
        np.testing.assert_allclose(matrix(metric, left, right), 0, rtol=0, atol=2e-6)


# Not centred: what lies between may be the centre itself, and like nothing.
@pytest.mark.parametrize("metric", [metric for metric in METRICS if metric != "centred"])
@given(
    pair=groups(),
    share=arrays(np.float32, (4,), elements=st.floats(0, 1, width=32)),
)
def test_a_sentence_between_two_is_nearer_to_either(
    metric: Metric, pair: list[Mixtures], share: np.ndarray
) -> None:
    a, b = pair
    part = share[: len(a), None, None]
    between = (part * a + (1 - part) * b).astype(np.float32)
    apart, nearer = similarity(metric, a, b), similarity(metric, a, between)
    assert (nearer >= apart - 1e-6).all()
