import numpy as np
import pytest
from scipy.stats import norm

from lattemix.build.backbones import TokenVectors
from lattemix.build.head import Head
from tests.tiny import SENTENCES
from training.encoding import EncodedCorpus
from training.evaluate import scores

FIRST, SECOND = np.array([0]), np.array([1])


def test_gaussian_mixture_l2_equals_numerical_integration() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 2, 2)), rng.normal(size=(4, 2, 2))  # [T, L, (mean, log variance)]
    x = np.linspace(-30, 30, 200_001)

    def density(codes: np.ndarray, dim: int) -> np.ndarray:
        return np.mean([norm.pdf(x, m, np.exp(v / 2)) for m, v in codes[:, dim]], axis=0)

    squared = [np.trapezoid((density(a, d) - density(b, d)) ** 2, x) for d in range(2)]
    codes = [a.reshape(3, -1), b.reshape(4, -1)]
    distance = scores.gaussian_mixture_l2(codes, FIRST, SECOND)
    assert distance == pytest.approx(-np.sqrt(np.mean(squared)), rel=1e-5)
    assert scores.gaussian_mixture_l2(codes, FIRST, FIRST) == pytest.approx(0)


def test_joint_gaussian_mixture_l2_equals_numerical_integration() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 2, 2)), rng.normal(size=(4, 2, 2))  # [T, L, (mean, log variance)]
    x = np.linspace(-20, 20, 1001)

    def density(codes: np.ndarray) -> np.ndarray:
        """The density over both dims: [1001, 1001]."""
        by_dim = [[norm.pdf(x, m, np.exp(v / 2)) for m, v in token] for token in codes]
        return np.mean([np.outer(first, second) for first, second in by_dim], axis=0)

    squared = ((density(a) - density(b)) ** 2).sum() * (x[1] - x[0]) ** 2
    codes = [a.reshape(3, -1), b.reshape(4, -1)]
    distance = scores.gaussian_mixture_l2(codes, FIRST, SECOND, joint=True)
    assert distance == pytest.approx(-np.sqrt(squared), rel=1e-5)


def test_poolings_match_direct_computation(head: Head) -> None:
    vectors = np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32)
    tokens = TokenVectors(vectors, np.zeros(5, np.int32), np.array([2, 3], np.int32))
    pooled = scores.pooling_scores(tokens, FIRST, SECOND, static=False, head=head)

    def cosine(x: np.ndarray, y: np.ndarray) -> float:
        return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))

    x, y, mean = vectors[:2].mean(axis=0), vectors[2:].mean(axis=0), head.tensors["mean"]
    assert pooled["mean"] == pytest.approx(cosine(x, y))
    assert pooled["centred mean"] == pytest.approx(cosine(x - mean, y - mean))
    assert pooled["max"] == pytest.approx(cosine(vectors[:2].max(axis=0), vectors[2:].max(axis=0)))
    assert pooled["cls"] == pytest.approx(cosine(vectors[0], vectors[2]))


def test_static_vectors_have_no_cls_pooling() -> None:
    vectors = np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32)
    tokens = TokenVectors(vectors, np.zeros(5, np.int32), np.array([2, 3], np.int32))
    assert set(scores.pooling_scores(tokens, FIRST, SECOND, static=True)) == {"mean", "max"}
    assert "cls" in scores.pooling_scores(tokens, FIRST, SECOND, static=False)


def test_unknown_words_get_the_lowest_score(head: Head, encoded: EncodedCorpus) -> None:
    known = encoded.backbone.encode(SENTENCES[:3])
    none = TokenVectors(known.vectors[:0], known.ids[:0], np.zeros(1, np.int32))
    tokens = TokenVectors.join([known, none])
    left, right = np.array([0, 1, 2, 3]), np.array([0, 1, 2, 0])
    for metric, values in scores.head_scores(head, tokens, left, right).items():
        assert np.isfinite(values).all(), metric
        assert values[3] <= values[:3].min(), metric
    pooled = scores.pooling_scores(tokens, left, right, static=True, head=head)
    assert pooled["mean"][3] == 0


def test_compares_pairs_in_chunks(head: Head, encoded: EncodedCorpus) -> None:
    tokens = encoded.backbone.encode(SENTENCES)
    left, right = np.arange(600) % 10, np.arange(600) * 7 % 10
    for metric, values in scores.head_scores(head, tokens, left, right).items():
        np.testing.assert_array_equal(values[:10], values[590:], err_msg=metric)
        assert len(set(values[:10])) > 1


def test_control_replaces_only_the_encoder(head: Head) -> None:
    control = scores.random_control(head)
    np.testing.assert_array_equal(control.tensors["mean"], head.tensors["mean"])
    weight, trained = control.encoder[0][0], head.encoder[0][0]
    assert weight.shape == trained.shape
    assert not np.allclose(weight, trained)
    assert abs(weight).max() <= 1 / np.sqrt(16)
    assert "centre" not in control.tensors
    np.testing.assert_array_equal(scores.random_control(head).encoder[0][0], weight)
    assert not np.allclose(scores.random_control(head, seed=1).encoder[0][0], weight)
