import tokenizers

from lattemix.tokenization import Tokenizer
from model_store import Artifact

LONG = "a dog runs in the park " * 500


class WithoutGil:
    """A tokenizer whose `encode`, which holds the GIL, takes short texts only."""

    def __init__(self, path: str) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(path)

    def encode(self, text: str) -> tokenizers.Encoding:
        assert len(text) < 10_000, "held the GIL while it tokenized a long text"
        return self._tokenizer.encode(text)

    def encode_batch(self, texts: list[str]) -> list[tokenizers.Encoding]:
        return self._tokenizer.encode_batch(texts)

    def encode_batch_fast(self, texts: list[str]) -> list[tokenizers.Encoding]:
        return self._tokenizer.encode_batch_fast(texts)


def without_gil(artifact: Artifact) -> Tokenizer:
    tokenizer = Tokenizer(artifact.tokenizer, max_tokens=16)
    tokenizer._tokenizer = WithoutGil(str(artifact.tokenizer))  # type: ignore[assignment]
    return tokenizer


def test_tokenizes_a_long_text_without_the_gil(artifact: Artifact) -> None:
    expected = Tokenizer(artifact.tokenizer, max_tokens=16)(["a dog", LONG])
    assert without_gil(artifact)(["a dog", LONG]) == expected


def test_parses_a_long_text_without_the_gil(artifact: Artifact) -> None:
    parsed = without_gil(artifact).parse(LONG, "left")
    assert len(parsed.spans) == len(parsed.tokens.ids) == 16
    assert parsed.spans[-2] == ("park", len(LONG) - 5, len(LONG) - 1, 2999, False)
