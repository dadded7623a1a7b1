import json
from pathlib import Path

import pytest
import tokenizers

from lattemix import tokenization
from lattemix.tokenization import Tokenizer
from model_store import Artifact, ArtifactError

LONG = "a dog runs in the park " * 500


class GilChecked:
    """A tokenizer whose `encode`, which holds the GIL, fails for long texts."""

    def __init__(self, path: str) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(path)

    def encode(self, text: str, **options: bool) -> tokenizers.Encoding:
        assert len(text) < 10_000, "held the GIL while tokenizing a long text"
        return self._tokenizer.encode(text, **options)

    def encode_batch(self, texts: list[str]) -> list[tokenizers.Encoding]:
        return self._tokenizer.encode_batch(texts)

    def encode_batch_fast(self, texts: list[str], **options: bool) -> list[tokenizers.Encoding]:
        return self._tokenizer.encode_batch_fast(texts, **options)


def gil_checked(artifact: Artifact) -> Tokenizer:
    tokenizer = Tokenizer(artifact.tokenizer, max_tokens=16)
    tokenizer._tokenizer = GilChecked(str(artifact.tokenizer))  # type: ignore[assignment]
    tokenizer._words = None
    return tokenizer


def uncached(path: Path, texts: list[str]) -> list[list[int]]:
    return [tokenizers.Tokenizer.from_file(str(path)).encode(text).ids for text in texts]


def test_tokenizes_long_texts_without_the_gil(artifact: Artifact) -> None:
    expected = Tokenizer(artifact.tokenizer, max_tokens=16)(["a dog", LONG])
    assert gil_checked(artifact)(["a dog", LONG]) == expected


def test_cached_words_give_the_tokens_of_the_whole_text(artifact: Artifact) -> None:
    tokenizer = Tokenizer(artifact.tokenizer, max_tokens=None)
    assert tokenizer._words is not None
    texts = ["", " ", "a  dog ", "The dog,[SEP] runs\tin\u00a0the park", "[CLS]", LONG]
    for _ in range(2):
        assert tokenizer.ids(texts) == uncached(artifact.tokenizer, texts)


def test_full_word_cache_starts_anew(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenization, "_CACHE_BYTES", 1000)
    tokenizer = Tokenizer(artifact.tokenizer, max_tokens=None)
    texts = [f"a dog{i} and the man" for i in range(50)]
    assert [tokenizer.ids([text])[0] for text in texts] == uncached(artifact.tokenizer, texts)
    assert tokenizer._words is not None
    assert len(tokenizer._words._ids) < 10


@pytest.mark.parametrize(
    "change",
    [
        {"pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"}},
        {"pre_tokenizer": None},
        {"normalizer": {"type": "Replace", "pattern": {"String": "a dog"}, "content": "sea"}},
    ],
)
def test_words_are_not_cached_if_they_depend_on_their_neighbours(
    artifact: Artifact, tmp_path: Path, change: dict[str, object]
) -> None:
    definition = json.loads(artifact.tokenizer.read_text()) | change
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(definition))
    tokenizer = Tokenizer(path, max_tokens=None)
    assert tokenizer._words is None
    assert tokenizer.ids(["a dog runs"]) == uncached(path, ["a dog runs"])


def test_words_are_not_cached_if_an_added_token_has_a_space(
    artifact: Artifact, tmp_path: Path
) -> None:
    definition = tokenizers.Tokenizer.from_file(str(artifact.tokenizer))
    definition.add_tokens(["red ball"])
    path = tmp_path / "tokenizer.json"
    definition.save(str(path))
    tokenizer = Tokenizer(path, max_tokens=None)
    assert tokenizer.ids(["a red ball"]) == uncached(path, ["a red ball"])


def test_parses_long_texts_without_the_gil(artifact: Artifact) -> None:
    parsed = gil_checked(artifact).parse(LONG, "left")
    assert len(parsed.spans) == len(parsed.tokens.ids) == 16
    assert parsed.spans[-2] == (
        "park",
        len(LONG) - 5,
        len(LONG) - 1,
        2999,
        False,
        parsed.tokens.ids[-2],
    )


def test_rejects_invalid_tokenizer_file(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ArtifactError, match="is not a tokenizer"):
        Tokenizer(tmp_path / "tokenizer.json", 16)


def test_rejects_tokenizer_that_panics(artifact: Artifact, tmp_path: Path) -> None:
    definition = json.loads(artifact.tokenizer.read_text())
    del definition["post_processor"]["special_tokens"]["[SEP]"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    with pytest.raises(ArtifactError, match="is not a tokenizer"):
        Tokenizer(tmp_path / "tokenizer.json", 16)
