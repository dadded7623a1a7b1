import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lattemix.encodings import TokenEncoding
from lattemix.explain import Word, breakdown, links, word_links, word_mixtures, words
from lattemix.similarity import MetricError, similarity
from lattemix.tokenization import TokenSpan
from model_store import Metric

METRICS: list[Metric] = ["cosine", "js", "l2", "bhattacharyya", "centred"]
LATENTS, CLASSES = 6, 5


def random_text(rng: np.random.Generator, tokens: int, sharpness: float) -> TokenEncoding:
    """A text of random tokens, some of weight 0."""
    logits = sharpness * rng.normal(size=(tokens, LATENTS, CLASSES))
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    mixtures = (odds / odds.sum(axis=-1, keepdims=True)).astype(np.float32)
    weights = rng.random(tokens).astype(np.float32) * (rng.random(tokens) < 0.8)
    weights[0] += 0.1
    spans = [TokenSpan(f"t{i}", i, i + 1, i, special=False) for i in range(tokens)]
    return TokenEncoding(spans, weights / weights.sum(), mixtures, tokens, truncated=False)


def centre() -> np.ndarray:
    return np.sqrt(random_text(np.random.default_rng(0), 50, 1).mixtures).mean(axis=0)


@pytest.mark.parametrize("metric", METRICS)
@given(
    seed=st.integers(0, 10**6),
    lengths=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    sharpness=st.sampled_from([0.01, 1.0, 8.0, 200.0]),  # up to classes of exactly 0
)
def test_contributions_sum_to_the_similarity(
    metric: Metric, seed: int, lengths: tuple[int, int], sharpness: float
) -> None:
    rng = np.random.default_rng(seed)
    a, b = (random_text(rng, length, sharpness) for length in lengths)
    scores = breakdown(metric, a, b, centre())
    (expected,) = similarity(metric, a.mixture[None], b.mixture[None], centre())
    assert scores.similarity == expected
    assert (scores.a.shape, scores.b.shape, scores.dims.shape) == (
        (lengths[0],),
        (lengths[1],),
        (6,),
    )
    for part in (scores.a, scores.b, scores.dims):
        assert part.sum() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("metric", METRICS)
def test_breakdown_is_symmetric(metric: Metric) -> None:
    rng = np.random.default_rng(1)
    a, b = random_text(rng, 4, 1), random_text(rng, 7, 1)
    there, back = breakdown(metric, a, b, centre()), breakdown(metric, b, a, centre())
    np.testing.assert_allclose(there.a, back.b, atol=1e-9)
    np.testing.assert_allclose(there.dims, back.dims, atol=1e-9)


@pytest.mark.parametrize("metric", METRICS)
def test_breakdown_of_a_sentence_with_itself(metric: Metric) -> None:
    a = random_text(np.random.default_rng(2), 5, 1)
    scores = breakdown(metric, a, a, centre())
    np.testing.assert_allclose(scores.a, scores.b, atol=1e-9)
    assert scores.a.sum() == pytest.approx(0 if metric == "l2" else 1, abs=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_shared_token_contributes_most(metric: Metric) -> None:
    """Both have a token in the first of three classes; their other tokens differ."""
    one_hot = np.eye(3, dtype=np.float32)[:, None, :]  # [3, 1, C]
    weights = np.full(2, 0.5, np.float32)
    a = TokenEncoding([], weights, one_hot[[0, 1]], 2, truncated=False)
    b = TokenEncoding([], weights, one_hot[[0, 2]], 2, truncated=False)
    scores = breakdown(metric, a, b, np.full((1, 3), 0.3, np.float32))
    assert scores.a[0] > scores.a[1]
    assert scores.b[0] > scores.b[1]


def test_token_of_weight_zero_contributes_nothing() -> None:
    a, b = (random_text(np.random.default_rng(seed), 3, 1) for seed in (3, 4))
    a.weights[:] = (0.5, 0, 0.5)
    for metric in METRICS:
        assert breakdown(metric, a, b, centre()).a[1] == 0


def test_centred_without_a_centre_raises() -> None:
    a = random_text(np.random.default_rng(5), 2, 1)
    with pytest.raises(MetricError):
        breakdown("centred", a, a, None)


def spans(*positions: tuple[int, int, int | None]) -> list[TokenSpan]:
    return [
        TokenSpan("x", start, end, word, special=word is None) for start, end, word in positions
    ]


def test_words_group_tokens_and_skip_special_ones() -> None:
    found = words(spans((0, 0, None), (0, 3, 4), (3, 6, 4), (7, 8, 5), (0, 0, None)))
    assert found == [Word(0, 6, range(1, 3)), Word(7, 8, range(3, 4))]


def test_word_mixture_is_the_weighted_mean_of_its_tokens() -> None:
    text = random_text(np.random.default_rng(6), 3, 1)
    text.weights[:] = (0.75, 0.25, 0)
    found = word_mixtures(text, [Word(0, 2, range(2)), Word(2, 3, range(2, 3))])
    np.testing.assert_allclose(
        found[0], 0.75 * text.mixtures[0] + 0.25 * text.mixtures[1], atol=1e-6
    )
    np.testing.assert_array_equal(found[1], text.mixtures[2])  # although its weight is 0


def test_links_are_mutual_and_one_to_one() -> None:
    table = np.array([[0.9, 0.1, 0.1], [0.8, 0.1, 0.1], [0.1, 0.1, 0.4]], np.float32)
    # Row 1 prefers column 0, which prefers row 0; no row prefers column 1.
    assert sorted(links(table)) == [(0, 0), (2, 2)]


def test_word_similar_to_all_others_does_not_block_their_links() -> None:
    table = np.array([[0.9, 0.9, 0.8], [0.3, 0.1, 0.5], [0.5, 0.2, 0.3]], np.float32)
    assert sorted(links(table)) == [(0, 1), (1, 2), (2, 0)]


@pytest.mark.parametrize(("shape", "link"), [((1, 3), (0, 1)), ((3, 1), (1, 0))])
def test_single_word_links_to_the_best(shape: tuple[int, int], link: tuple[int, int]) -> None:
    table = np.array([0.2, 0.9, 0.3], np.float32).reshape(shape)
    assert list(links(table)) == [link]


def test_repeated_words_are_linked_in_order() -> None:
    table = np.array([[1, 0, 1], [0, 0.5, 0], [1, 0, 1]], np.float32)
    assert sorted(links(table)) == [(0, 0), (1, 1), (2, 2)]


def test_no_links_without_words() -> None:
    assert list(links(np.empty((0, 3), np.float32))) == []


def test_words_of_weight_zero_are_not_linked() -> None:
    table = np.array([[1, 0.2, 0.4], [0.2, 0.6, 0.3], [0.3, 0.1, 0.9]], np.float32)
    assert sorted(word_links(table, [0, 0.5, 0.5], [0, 0.5, 0.5])) == [(1, 1), (2, 2)]
    assert word_links(table, [0, 0, 0], [1, 1, 1]) == []
