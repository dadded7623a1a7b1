import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lattemix import static
from lattemix.encoder import Encoder
from lattemix.errors import EmptyTextError, NonFiniteError, TextError, TooLongError
from lattemix.model import Model
from lattemix.session import Session
from lattemix.tokenization import MAX_PARSED_TOKENS
from model_store import Store
from tests.tiny import SENTENCES, WORDS

LONG = " ".join(WORDS[i % len(WORDS)] for i in range(3 * MAX_PARSED_TOKENS + 7))

texts = st.lists(
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=20).map(" ".join), min_size=1, max_size=9
)


@given(texts=texts)
def test_mixture_is_identical_in_every_batch(static_encoder: Encoder, texts: list[str]) -> None:
    together = static_encoder.encode(texts).mixtures
    np.testing.assert_array_equal(static_encoder.encode(texts[::-1]).mixtures, together[::-1])
    for text, mixture in zip(texts, together, strict=True):
        np.testing.assert_array_equal(static_encoder.encode([text]).mixtures[0], mixture)


@given(texts=texts)
def test_mixtures_equal_those_of_a_padded_batch(static_encoder: Encoder, texts: list[str]) -> None:
    tokens = static_encoder.tokenize(texts)
    encoding = static_encoder.encode(texts)
    np.testing.assert_array_equal(encoding.mixtures, static_encoder.run(tokens))
    assert encoding.tokens == [text.total for text in tokens]


def test_long_text_is_the_weighted_average_of_its_parts(static_encoder: Encoder) -> None:
    encoding = static_encoder.encode([LONG, *WORDS])
    assert encoding.tokens[0] == 3 * MAX_PARSED_TOKENS + 7
    assert not any(encoding.truncated)
    (tokens,) = static_encoder.tokenize([LONG])
    words = dict(zip(WORDS, encoding.mixtures[1:], strict=True))
    expected = np.einsum(
        "s,slc->lc",
        static_encoder.weights(tokens).astype(np.float64),
        np.array([words[word] for word in LONG.split()]),
    )
    np.testing.assert_allclose(encoding.mixtures[0], expected, atol=1e-6)


def test_long_text_is_computed_in_pieces(
    static_encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []
    run = Session.run

    def recording(session: Session, ids, mask, pool):
        sizes.append(ids.size)
        return run(session, ids, mask, pool)

    monkeypatch.setattr(Session, "run", recording)
    static_encoder.encode([LONG, *SENTENCES])
    assert max(sizes) == static._RUN_TOKENS
    assert sum(sizes) >= 3 * MAX_PARSED_TOKENS + 7


def test_slices_in_threads_give_the_same_results(
    static_encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = static_encoder.encode(SENTENCES)
    monkeypatch.setattr(static, "_SLICE_CHARACTERS", 50)
    found = static_encoder.encode(SENTENCES)
    np.testing.assert_array_equal(found.mixtures, expected.mixtures)
    assert found.tokens == expected.tokens


@pytest.mark.parametrize("characters", [10, 1000])
def test_names_all_empty_texts(
    static_encoder: Encoder, monkeypatch: pytest.MonkeyPatch, characters: int
) -> None:
    monkeypatch.setattr(static, "_SLICE_CHARACTERS", characters)
    with pytest.raises(EmptyTextError, match="Text 2 is empty") as caught:
        static_encoder.encode(["a dog", " ", "a man", "unknownword", "the sea", ""])
    assert (caught.value.index, *caught.value.others) == (1, 3, 5)


def test_empty_list_returns_empty_array(static_encoder: Encoder) -> None:
    assert static_encoder.encode([]).mixtures.shape == (0, 4, 5)


def test_rejects_lone_surrogate(static_encoder: Encoder) -> None:
    with pytest.raises(TextError, match="lone surrogate"):
        static_encoder.encode(["a", "\ud800"])


def test_rejects_non_finite_mixtures(
    static_encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Session.run
    monkeypatch.setattr(Session, "run", lambda *arguments: run(*arguments) * np.nan)
    with pytest.raises(NonFiniteError):
        static_encoder.encode(SENTENCES)


def test_one_session_and_no_maximum_length(static_encoder: Encoder) -> None:
    assert static_encoder._wide is static_encoder._session
    assert static_encoder.manifest.max_tokens is None
    assert Model(static_encoder).info().max_input_length is None


def test_reads_older_manifest_with_a_maximum_length(static_store: Store) -> None:
    manifest = static_store.open("static").manifest
    dumped = manifest.model_dump(mode="json") | {"max_tokens": 256}
    assert type(manifest).model_validate(dumped) == manifest


def test_encodes_long_text_with_truncate_false(static_encoder: Encoder) -> None:
    model = Model(static_encoder)
    np.testing.assert_array_equal(model.encode(LONG, truncate=False), model.encode(LONG))


def test_explains_the_first_tokens_of_a_long_text(static_encoder: Encoder) -> None:
    model = Model(static_encoder)
    explained = model.explain(LONG, "a dog")
    assert explained.truncated == [True, False]
    assert len(explained.a.tokens) == MAX_PARSED_TOKENS
    with pytest.raises(TooLongError, match="Text 1 has 1,543 tokens, more than the limit of 512"):
        model.explain(LONG, "a dog", truncate=False)


def test_explanation_sums_to_the_similarity(static_encoder: Encoder) -> None:
    model = Model(static_encoder)
    explained = model.explain(SENTENCES[0], SENTENCES[1])
    similarity = model.similarity(SENTENCES[0], SENTENCES[1])
    assert explained.similarity == pytest.approx(similarity, abs=1e-6)
    total = sum(token.contribution for token in explained.a.tokens)
    assert total == pytest.approx(similarity, abs=1e-5)
