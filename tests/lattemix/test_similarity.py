from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import jensenshannon

from lattemix import similarity as module
from lattemix.errors import DimensionsError
from lattemix.similarity import MetricError, Mixtures, matrix, prefix_dims, similarity, vectors
from model_store import Metric

N, L, C = 3, 3, 4
METRICS: tuple[Metric, ...] = get_args(Metric)
DOTS: tuple[Metric, ...] = ("cosine", "bhattacharyya", "centred")
CENTRE = np.full((L, C), 0.3, np.float32)  # no sentence has it: its squares do not sum to 1

every_metric = pytest.mark.parametrize("metric", METRICS)


def to_mixtures(weights: np.ndarray) -> Mixtures:
    """Normalise non-negative weights over the last axis; all zeros become uniform."""
    weights = weights.astype(np.float64) + np.where(weights.sum(-1, keepdims=True) == 0, 1, 0)
    return (weights / weights.sum(-1, keepdims=True)).astype(np.float32)


def some(count: int, latents: int = L, classes: int = C, seed: int = 0) -> Mixtures:
    """Mixtures with probabilities of every magnitude."""
    exponents = np.random.default_rng(seed).uniform(-12, 0, (count, latents, classes))
    return to_mixtures(10**exponents)


def all_pairs(metric: Metric, a: Mixtures, b: Mixtures, centre: np.ndarray | None) -> np.ndarray:
    repeated, tiled = np.repeat(a, len(b), axis=0), np.tile(b, (len(a), 1, 1))
    return similarity(metric, repeated, tiled, centre).reshape(len(a), len(b))


# Weights of 0 and of every magnitude, in decibels: small ones are where precision is lost.
mixtures = arrays(np.int64, (N, L, C), elements=st.integers(0, 120)).map(
    lambda level: to_mixtures(np.where(level > 0, 10 ** (level / 10 - 12), 0))
)


@every_metric
@given(a=mixtures, b=mixtures)
def test_similarity_is_symmetric(metric: Metric, a: Mixtures, b: Mixtures) -> None:
    pairs, swapped = similarity(metric, a, b, CENTRE), similarity(metric, b, a, CENTRE)
    np.testing.assert_allclose(pairs, swapped, atol=1e-12)
    table, swapped_table = matrix(metric, a, b, CENTRE), matrix(metric, b, a, CENTRE)
    np.testing.assert_allclose(table, swapped_table.T, atol=1e-6)
    own_table = matrix(metric, a, a, CENTRE)
    np.testing.assert_array_equal(own_table, own_table.T)


@every_metric
@given(a=mixtures)
def test_similarity_to_itself_is_the_maximum(metric: Metric, a: Mixtures) -> None:
    best, tolerance = (0, 0) if metric == "l2" else (1, 1e-6)
    for same in (a, a.copy()):
        pairs = similarity(metric, a, same, CENTRE)
        table = matrix(metric, a, same, CENTRE)
        for scores in (pairs, table.diagonal()):
            np.testing.assert_allclose(scores, best, rtol=0, atol=tolerance)
            assert not np.signbit(scores).any()  # 0, and not -0


@every_metric
@given(a=mixtures, b=mixtures)
def test_similarity_is_within_bounds(metric: Metric, a: Mixtures, b: Mixtures) -> None:
    low, high = {"centred": (-1, 1), "l2": (-np.sqrt(2 * L) - 1e-6, 0)}.get(metric, (0, 1))
    for scores in (similarity(metric, a, b, CENTRE), matrix(metric, a, b, CENTRE)):
        assert np.isfinite(scores).all()
        assert ((low <= scores) & (scores <= high)).all()


@every_metric
@given(a=mixtures, b=mixtures.map(lambda m: m[1:]))
def test_matrix_equals_similarity_of_all_pairs(metric: Metric, a: Mixtures, b: Mixtures) -> None:
    table = matrix(metric, a, b, CENTRE)
    assert (table.shape, table.dtype) == ((N, N - 1), np.float32)
    expected = all_pairs(metric, a, b, CENTRE)
    np.testing.assert_allclose(table, expected, rtol=0, atol=1e-6)
    # One with all, as in ranking.
    np.testing.assert_allclose(matrix(metric, a[:1], b, CENTRE), expected[:1], rtol=0, atol=1e-6)
    np.testing.assert_allclose(matrix(metric, a, b[:1], CENTRE), expected[:, :1], rtol=0, atol=1e-6)


@pytest.mark.parametrize(("latents", "classes"), [(128, 20), (16, 100), (256, 2)])
@every_metric
def test_matrix_equals_similarity_of_all_pairs_for_model_sizes(
    metric: Metric, latents: int, classes: int
) -> None:
    a = some(24, latents, classes)
    a[1::2] = to_mixtures(a[1::2] > 0.1)  # sharp, with most probabilities 0
    a[-1] = a[0] * (1 + 1e-6)  # nearly equal to the first
    centre = np.sqrt(a).mean(axis=0)
    expected = all_pairs(metric, a, a, centre)
    for table in (matrix(metric, a, a, centre), matrix(metric, a, a.copy(), centre)):
        np.testing.assert_allclose(table, expected, rtol=0, atol=1e-6)


@every_metric
def test_result_does_not_depend_on_block_size(
    metric: Metric, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = some(7), some(5, seed=1)
    pairs, table, own = (
        similarity(metric, a[:5], b, CENTRE),
        matrix(metric, a, b, CENTRE),
        matrix(metric, a, a, CENTRE),
    )
    monkeypatch.setattr(module, "_PAIR_BYTES", 2 * 8 * a[0].size)
    monkeypatch.setattr(module, "_BLOCK_ROWS", 3)
    np.testing.assert_allclose(similarity(metric, a[:5], b, CENTRE), pairs, atol=1e-12)
    np.testing.assert_allclose(matrix(metric, a, b, CENTRE), table, atol=1e-6)
    np.testing.assert_allclose(matrix(metric, a, a, CENTRE), own, atol=1e-6)
    np.testing.assert_allclose(matrix(metric, a[:1], b, CENTRE), table[:1], atol=1e-6)
    np.testing.assert_allclose(matrix(metric, a, b[:1], CENTRE), table[:, :1], atol=1e-6)


@given(a=mixtures, b=mixtures)
def test_js_equals_scipy(a: Mixtures, b: Mixtures) -> None:
    distance = jensenshannon(a.astype(np.float64), b.astype(np.float64), axis=-1, base=2)  # [N, L]
    expected = 1 - np.square(np.nan_to_num(distance)).mean(axis=-1)
    np.testing.assert_allclose(similarity("js", a, b), expected, atol=1e-6)


@given(a=mixtures, b=mixtures)
def test_l2_equals_numpy(a: Mixtures, b: Mixtures) -> None:
    expected = -np.linalg.norm((a.astype(np.float64) - b).reshape(N, L * C), axis=-1)
    np.testing.assert_allclose(similarity("l2", a, b), expected, rtol=0, atol=1e-6)


def test_hand_computed_values() -> None:
    # Two latent dims with two classes: one equal, one opposite.
    a = np.array([[[1, 0], [1, 0]]], np.float32)
    b = np.array([[[1, 0], [0, 1]]], np.float32)
    expected = {"cosine": 0.5, "js": 0.5, "l2": -np.sqrt(2), "bhattacharyya": 0.5}
    for metric, score in expected.items():
        assert similarity(metric, a, b) == pytest.approx([score])
        assert matrix(metric, a, b) == pytest.approx(np.array([[score]]))


def test_centring_removes_what_all_sentences_share() -> None:
    common = np.array([[0.5, 0.5], [0.9, 0.1]], np.float32)
    centre = np.sqrt(common)
    a = np.array([[[0.6, 0.4], [0.9, 0.1]]], np.float32)
    b = np.array([[[0.4, 0.6], [0.9, 0.1]]], np.float32)
    assert similarity("cosine", a, b) > 0.9
    assert similarity("centred", a, b, centre) < -0.9
    assert similarity("centred", a, a, centre) == pytest.approx([1])


def test_zero_vector_has_similarity_0() -> None:
    common = np.full((1, L, C), 1 / C, np.float32)
    assert similarity("centred", common, common, np.sqrt(common[0])) == [0]
    assert matrix("cosine", np.zeros_like(common), common) == [[0]]


@every_metric
def test_half_precision_mixtures(metric: Metric) -> None:
    exact = some(8, 128, 20)
    rounded = exact.astype(np.float16)  # rows no longer sum to 1, and small values are 0
    centre = np.full((128, 20), 0.1, np.float32)
    table = matrix(metric, rounded.astype(np.float32), rounded.astype(np.float32), centre)
    np.testing.assert_array_equal(table, matrix(metric, rounded, rounded.copy(), centre))
    np.testing.assert_allclose(table, all_pairs(metric, rounded, rounded, centre), atol=1e-6)
    np.testing.assert_allclose(table, matrix(metric, exact, exact, centre), atol=5e-3)


@every_metric
def test_empty_input_gives_empty_scores(metric: Metric) -> None:
    none, one = np.empty((0, L, C), np.float32), some(1)
    assert similarity(metric, none, none, CENTRE).shape == (0,)
    assert matrix(metric, none, one, CENTRE).shape == (0, 1)
    assert matrix(metric, one, none, CENTRE).shape == (1, 0)
    if metric in DOTS:
        assert vectors(metric, none, CENTRE).shape == (0, L * C)


def test_rejects_sides_of_different_length() -> None:
    with pytest.raises(ValueError, match="2 sentences cannot be paired with 3"):
        similarity("cosine", some(2), some(3))


@pytest.mark.parametrize("metric", DOTS)
@given(a=mixtures, b=mixtures)
def test_dot_product_of_vectors_equals_similarity(metric: Metric, a: Mixtures, b: Mixtures) -> None:
    x, y = vectors(metric, a, CENTRE), vectors(metric, b, CENTRE)  # [N, L*C] each
    np.testing.assert_allclose((x * y).sum(axis=-1), similarity(metric, a, b, CENTRE), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(x, axis=-1), 1, atol=1e-6)


@pytest.mark.parametrize("metric", sorted(set(METRICS) - set(DOTS)))
def test_vectors_of_other_metrics_are_those_of_bhattacharyya(metric: Metric) -> None:
    a = some(2)
    np.testing.assert_array_equal(vectors(metric, a), vectors("bhattacharyya", a))


@pytest.mark.parametrize("compare", [similarity, matrix])
def test_rejects_centred_without_a_centre(compare) -> None:
    with pytest.raises(MetricError, match="needs a model that carries a centre; this one does not"):
        compare("centred", some(1), some(1))


def test_does_not_modify_its_input() -> None:
    a, b = some(2), some(2, seed=1)
    before = a.copy(), b.copy()
    for metric in METRICS:
        similarity(metric, a, b, CENTRE)
        matrix(metric, a, b, CENTRE)
    np.testing.assert_array_equal((a, b), before)


@pytest.mark.parametrize("metric", ["cosine", "bhattacharyya", "centred"])
def test_vectors_of_a_prefix_are_those_of_a_smaller_mixture(metric: Metric) -> None:
    mixtures = np.random.default_rng(0).dirichlet(np.ones(5), (3, 8)).astype(np.float32)
    centre = np.sqrt(mixtures).mean(axis=0)
    rows = vectors(metric, mixtures, centre, dims=3)
    assert rows.shape == (3, 15)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1)
    np.testing.assert_array_equal(rows, vectors(metric, mixtures[:, :3], centre[:3]))


@pytest.mark.parametrize(("dimensions", "dims"), [(None, 100), (2000, 100), (20, 1), (1000, 50)])
def test_prefix_dims(dimensions: int | None, dims: int) -> None:
    assert prefix_dims(dimensions, latent_dims=100, classes=20) == dims


@pytest.mark.parametrize("dimensions", [-20, 0, 10, 999, 2020])
def test_rejects_other_dimensions(dimensions: int) -> None:
    message = f"a multiple of 20 from 20 to 2,000, not {dimensions:,}"
    with pytest.raises(DimensionsError, match=message):
        prefix_dims(dimensions, latent_dims=100, classes=20)
