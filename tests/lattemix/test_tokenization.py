import json
from pathlib import Path

import pytest
import tokenizers

from lattemix.tokenization import Tokenizer
from model_store import Artifact, ArtifactError

LONG = "a dog runs in the park " * 500


class GilChecked:
    """A tokenizer whose `encode`, which holds the GIL, fails for long texts."""

    def __init__(self, path: str) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(path)

    def encode(self, text: str) -> tokenizers.Encoding:
        assert len(text) < 10_000, "held the GIL while tokenizing a long text"
        return self._tokenizer.encode(text)

    def encode_batch(self, texts: list[str]) -> list[tokenizers.Encoding]:
        return self._tokenizer.encode_batch(texts)

    def encode_batch_fast(self, texts: list[str]) -> list[tokenizers.Encoding]:
        return self._tokenizer.encode_batch_fast(texts)


def gil_checked(artifact: Artifact) -> Tokenizer:
    tokenizer = Tokenizer(artifact.tokenizer, max_tokens=16)
    tokenizer._tokenizer = GilChecked(str(artifact.tokenizer))  # type: ignore[assignment]
    return tokenizer


def test_tokenizes_long_texts_without_the_gil(artifact: Artifact) -> None:
    expected = Tokenizer(artifact.tokenizer, max_tokens=16)(["a dog", LONG])
    assert gil_checked(artifact)(["a dog", LONG]) == expected


def test_parses_long_texts_without_the_gil(artifact: Artifact) -> None:
    parsed = gil_checked(artifact).parse(LONG, "left")
    assert len(parsed.spans) == len(parsed.tokens.ids) == 16
    assert parsed.spans[-2] == ("park", len(LONG) - 5, len(LONG) - 1, 2999, False)


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
