"""Long texts: split into windows, whose mixtures are averaged."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lattemix import tokenization
from lattemix.arguments import as_explain_truncate, as_truncate
from lattemix.encoder import Encoder
from lattemix.errors import EmptyTextError, TooLongError
from lattemix.model import Model
from lattemix.responses import Rejection
from lattemix.settings import Truncate
from lattemix.tokenization import Tokenizer, Tokens
from model_store import Artifact, LatteMixError
from tests.tiny import SENTENCES

LONG = " ".join(SENTENCES)  # the tiny model reads 16 tokens: 14 and two special ones
STEP = 10  # 14 tokens, of which neighbours share 4


@pytest.fixture(scope="module")
def model(encoder: Encoder) -> Model:
    return Model(encoder)


def windows(tokenizer: Tokenizer, count: int) -> list[list[int]]:
    """Return the windows of the text 1, 2, ..., without their special tokens."""
    before, after = tokenizer._before, tokenizer._after
    text = Tokens([*before, *range(1, count + 1), *after], count + len(before) + len(after))
    found = tokenizer.windows(text)
    for window in found:
        assert window.ids[: len(before)] == before
        assert window.ids[-len(after) :] == after
        assert not window.truncated
    return [window.ids[len(before) : -len(after)] for window in found]


@given(count=st.integers(1, 2000), max_tokens=st.integers(3, 300), overlap=st.integers(0, 64))
def test_windows_cover_every_token(
    artifact: Artifact, count: int, max_tokens: int, overlap: int
) -> None:
    tokenizer = Tokenizer(artifact.tokenizer, max_tokens)
    size = max_tokens - 2
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenization, "OVERLAP", overlap)
        found = windows(tokenizer, count)
    if count <= size:
        assert found == [list(range(1, count + 1))]
        return
    assert {len(window) for window in found} == {size}  # the last one too
    shared = min(overlap, size // 3)
    for window, following in pairwise(found[:-1]):
        assert following[0] == window[-1] + 1 - shared
    assert found[0][0] == 1
    assert found[-1][-1] == count
    assert found[-2][0] < found[-1][0] <= found[-2][-1] + 1 - shared
    assert {token for window in found for token in window} == set(range(1, count + 1))


def test_windows_of_256_tokens_share_64(artifact: Artifact) -> None:
    found = windows(Tokenizer(artifact.tokenizer, 256), 700)
    assert [window[0] for window in found] == [1, 191, 381, 447]


def test_static_models_have_no_windows(artifact: Artifact) -> None:
    tokenizer = Tokenizer(artifact.tokenizer, max_tokens=None, max_windows=1)
    (text,) = tokenizer(["dog " * 5000], "window")
    assert tokenizer.windows(text) == [text]


@pytest.mark.parametrize("truncate", ["error", "right", "left", "window"])
def test_text_within_the_limit_is_unchanged(encoder: Encoder, truncate: Truncate) -> None:
    text = "dog " * 14
    expected = encoder.run([Tokens(encoder.tokenizer.ids([text])[0], 16)])
    encoding = encoder.encode([text], truncate)
    np.testing.assert_array_equal(encoding.mixtures, expected)
    assert (encoding.tokens, encoding.truncated) == ([16], [False])


def test_mixture_is_the_average_of_the_windows(encoder: Encoder) -> None:
    encoding = encoder.encode(["a dog", LONG, "a man", LONG])
    ids = encoder.tokenizer.ids([LONG])[0]
    content = ids[1:-1]
    starts = [*range(0, len(content) - 14, STEP), len(content) - 14]
    parts = [
        encoder.run([Tokens([ids[0], *content[start : start + 14], ids[-1]], 16)])[0]
        for start in starts
    ]
    assert len(parts) > 3
    np.testing.assert_allclose(encoding.mixtures[1], np.mean(parts, axis=0), atol=1e-6)
    np.testing.assert_array_equal(encoding.mixtures[1], encoding.mixtures[3])
    np.testing.assert_allclose(encoding.mixtures.sum(axis=-1), 1, atol=1e-6)
    assert encoding.tokens[1] == len(ids)
    assert encoding.truncated == [False] * 4


def test_windows_count_by_their_token_weights(artifact: Artifact) -> None:
    encoder = Encoder(artifact, provider="cpu")
    vocabulary = encoder.tokenizer.vocabulary_size
    encoder._weights = np.linspace(0.1, 3, vocabulary, dtype=np.float32)
    (text,) = encoder.tokenize([LONG])
    found = encoder.windows(text)
    weights = [encoder._weights[window.ids].sum() for window in found]
    parts = [encoder.run([window])[0] for window in found]
    expected = np.average(parts, axis=0, weights=weights)
    np.testing.assert_allclose(encoder.encode([LONG]).mixtures[0], expected, atol=1e-6)


def test_windows_without_weight_are_left_out(artifact: Artifact) -> None:
    encoder = Encoder(artifact, provider="cpu")
    dog = encoder.tokenizer.ids(["dog"])[0][1]
    encoder._weights = np.zeros(encoder.tokenizer.vocabulary_size, np.float32)
    encoder._weights[dog] = 1
    (mixture,) = encoder.encode(["dog " + "man " * 40]).mixtures
    first = encoder.encode(["dog " + "man " * 13]).mixtures[0]
    np.testing.assert_allclose(mixture, first, atol=1e-6)
    with pytest.raises(EmptyTextError):
        encoder.encode(["man " * 40])


def test_windows_do_not_warn(model: Model) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.encode(LONG)
        model.rank(LONG, [LONG])


def test_text_of_too_many_windows_is_rejected(artifact: Artifact) -> None:
    model = Model(Encoder(artifact, provider="cpu", max_windows=3))
    longest = "dog " * (14 + 2 * STEP)
    assert model.encode(longest).shape == (4, 5)
    message = (
        r"Text 2 has 37 tokens, more than the 36 of LATTEMIX_MAX_WINDOWS=3: shorten it, or set "
        r'truncate to "right"\.'
    )
    with pytest.raises(TooLongError, match=message):
        model.encode(["a dog", longest + "dog"])
    with pytest.raises(TooLongError, match=r"texts\[1\] has 37 tokens"):
        model.rank("a dog", ["a man", longest + "dog"])
    with pytest.warns(UserWarning, match="1 of 1 texts have more than 16"):
        model.encode(longest + "dog", truncate="right")


def test_iterators_reject_only_texts_of_too_many_windows(artifact: Artifact) -> None:
    model = Model(Encoder(artifact, provider="cpu", max_windows=2))
    texts = ["a dog", "dog " * 50, "", "dog " * 20, "dog " * 60]
    rows = list(model.iter_encode(texts))
    rejected = {row.index: row.reason for row in rows if isinstance(row, Rejection)}
    assert rejected.keys() == {1, 2, 4}
    assert rejected[1].startswith("text has 52 tokens, more than the 26 of LATTEMIX_MAX_WINDOWS=2")
    assert rejected[4].startswith("text has 62 tokens")
    rows = list(model.iter_encode(texts, truncate="error"))
    assert [isinstance(row, Rejection) for row in rows] == [False, True, True, True, True]


def test_index_of_a_repeated_long_text_is_the_first(encoder: Encoder) -> None:
    with pytest.raises(TooLongError) as caught:
        encoder.encode(["a dog", "a dog", LONG, LONG], "error")
    assert caught.value.index == 2


@pytest.mark.parametrize(
    ("option", "default", "expected"),
    [
        (None, "window", "window"),
        (None, "error", "error"),
        (None, "left", "left"),
        (True, "window", "window"),
        (True, "left", "left"),
        (True, "error", "right"),
        (False, "window", "error"),
        (False, "right", "error"),
        ("error", "window", "error"),
        ("left", "error", "left"),
        ("window", "right", "window"),
    ],
)
def test_resolves_the_truncate_option(
    option: Truncate | bool | None, default: Truncate, expected: Truncate
) -> None:
    assert as_truncate(option, default) == expected
    if option != "window":
        explained = "right" if expected == "window" else expected
        assert as_explain_truncate(option, default) == explained


def test_rejects_unknown_truncate_options(model: Model) -> None:
    with pytest.raises(LatteMixError, match="truncate is 'middle': choose among error, right"):
        model.encode("a dog", truncate="middle")  # type: ignore[arg-type]


def test_explanations_truncate_instead_of_windows(model: Model) -> None:
    explained = model.explain("a dog", LONG)
    assert explained.truncated[1]
    assert explained.b == model.explain("a dog", LONG, truncate="right").b
    assert explained.b != model.explain("a dog", LONG, truncate="left").b
    with pytest.raises(LatteMixError, match="an explanation needs all tokens in one window"):
        model.explain("a dog", "a man", truncate="window")


def test_truncate_of_the_settings_is_the_default(encoder: Encoder) -> None:
    model = Model(encoder, truncate="error")
    with pytest.raises(TooLongError):
        model.similarity("a dog", LONG)
    with pytest.warns(UserWarning, match="were truncated"):
        model.similarity("a dog", LONG, truncate=True)
