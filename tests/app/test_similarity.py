import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import jensenshannon

from app.similarity import MetricError, Mixtures, bhattacharyya, centred, cosine, js, l2, similarity

L, C = 3, 4
SYMMETRIC = [cosine, js, l2, bhattacharyya]
NAMES = ["cosine", "js", "l2", "bhattacharyya"]


def to_mixtures(weights: np.ndarray) -> Mixtures:
    """Non-negative weights, zeros and all, to distributions over the last axis."""
    weights = weights.astype(np.float64) + np.where(weights.sum(-1, keepdims=True) == 0, 1, 0)
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


weights = arrays(np.float32, (2, L, C), elements=st.floats(0, 1, width=32))
mixtures = weights.map(to_mixtures)


@pytest.mark.parametrize("metric", SYMMETRIC)
@given(a=mixtures, b=mixtures)
def test_order_does_not_matter(metric, a: Mixtures, b: Mixtures) -> None:
    np.testing.assert_allclose(metric(a, b), metric(b, a), atol=1e-12)


@pytest.mark.parametrize(("metric", "best"), [(cosine, 1), (js, 1), (l2, 0), (bhattacharyya, 1)])
@given(a=mixtures)
def test_nothing_is_closer_than_itself(metric, best: float, a: Mixtures) -> None:
    np.testing.assert_allclose(metric(a, a), best, atol=1e-6)


@pytest.mark.parametrize(
    ("metric", "low", "high"),
    [(cosine, 0, 1), (js, 0, 1), (l2, -np.sqrt(2 * L) - 1e-6, 0), (bhattacharyya, 0, 1)],
)
@given(a=mixtures, b=mixtures)
def test_bounds(metric, low: float, high: float, a: Mixtures, b: Mixtures) -> None:
    scores = metric(a, b)
    assert np.isfinite(scores).all()
    assert ((low <= scores) & (scores <= high)).all()


@given(a=mixtures, b=mixtures)
def test_js_is_scipys(a: Mixtures, b: Mixtures) -> None:
    distance = jensenshannon(a.astype(np.float64), b.astype(np.float64), axis=-1, base=2)  # [N, L]
    expected = 1 - np.square(np.nan_to_num(distance)).mean(axis=-1)
    np.testing.assert_allclose(js(a, b), expected, atol=1e-6)


@given(a=mixtures, b=mixtures, c=mixtures)
def test_the_root_of_js_divergence_is_a_metric(a: Mixtures, b: Mixtures, c: Mixtures) -> None:
    def distance(x: Mixtures, y: Mixtures) -> np.ndarray:
        return np.sqrt(1 - js(x, y))

    assert (distance(a, c) <= distance(a, b) + distance(b, c) + 1e-6).all()


def test_values_worked_out_by_hand() -> None:
    # Two latent dims of two classes: one the same, one opposite.
    a = np.array([[[1, 0], [1, 0]]], np.float32)
    b = np.array([[[1, 0], [0, 1]]], np.float32)
    assert cosine(a, b) == pytest.approx([0.5])
    assert js(a, b) == pytest.approx([0.5])
    assert l2(a, b) == pytest.approx([-np.sqrt(2)])
    assert bhattacharyya(a, b) == pytest.approx([0.5])


def test_centring_removes_what_all_sentences_share() -> None:
    common = np.array([[0.5, 0.5], [0.9, 0.1]], np.float32)
    centre = np.sqrt(common)
    a = np.array([[[0.6, 0.4], [0.9, 0.1]]], np.float32)
    b = np.array([[[0.4, 0.6], [0.9, 0.1]]], np.float32)
    assert cosine(a, b) > 0.9
    assert centred(a, b, centre) < -0.9
    assert centred(a, a, centre) == pytest.approx([1])


def test_a_sentence_at_the_centre_has_no_direction() -> None:
    common = np.full((1, L, C), 1 / C, np.float32)
    assert centred(common, common, np.sqrt(common[0])) == pytest.approx([0])


def test_every_metric_by_name() -> None:
    rng = np.random.default_rng(0)
    a, b = (to_mixtures(rng.random((5, L, C))) for _ in range(2))
    centre = np.sqrt(a).mean(axis=0)
    for name, function in [*zip(NAMES, SYMMETRIC, strict=True)]:
        np.testing.assert_array_equal(similarity(name, a, b), function(a, b))
    np.testing.assert_array_equal(similarity("centred", a, b, centre), centred(a, b, centre))


def test_centred_without_a_centre_is_refused() -> None:
    a = np.full((1, L, C), 1 / C, np.float32)
    with pytest.raises(MetricError, match="needs a model that carries a centre"):
        similarity("centred", a, a)
