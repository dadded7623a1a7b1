"""Token ids of OpenAI's vocabulary, as LangChain cuts long texts."""

import pytest

from app import token_ids
from app.errors import ApiError
from lattemix.encoder import Encoder
from tests.app.test_clients import tiktoken_cache

__all__ = ["tiktoken_cache"]  # a fixture

CHINESE = "语义相似度衡量两个句子的意思有多接近。 " * 20
ENGLISH = "Nobody's dog likes the cold sea, and yet it swims every morning. " * 20


@pytest.fixture
def cl100k(tiktoken_cache: object, monkeypatch: pytest.MonkeyPatch) -> object:
    import tiktoken

    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tiktoken_cache))
    token_ids._cl100k.cache_clear()
    return tiktoken.get_encoding("cl100k_base")


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, "a", " \n\tdogs", "<|endoftext|>", "🙂🙃"])
def test_texts_are_recovered_exactly(cl100k: object, encoder: Encoder, text: str) -> None:
    ids = cl100k.encode(text, disallowed_special=())  # type: ignore[attr-defined]
    assert token_ids.texts_of([ids], encoder.tokenizer) == [text]


@pytest.mark.parametrize("text", [ENGLISH, CHINESE])
def test_chunks_lose_at_most_the_characters_that_were_cut(
    cl100k: object, encoder: Encoder, text: str
) -> None:
    ids = cl100k.encode(text)  # type: ignore[attr-defined]
    for start in range(20):
        for end in range(200, 220):
            (chunk,) = token_ids.texts_of([ids[start:end]], encoder.tokenizer)
            content = cl100k.decode_bytes(ids[start:end])  # type: ignore[attr-defined]
            assert chunk.encode() in content
            assert len(content) - len(chunk.encode()) <= 6


@pytest.mark.parametrize(
    "ids", [[100_300], [10**12], [5, 4, 3, 2, 1] * 20, [*range(0, 90_000, 331)]]
)
def test_rejects_ids_of_other_vocabularies(
    cl100k: object, encoder: Encoder, ids: list[int]
) -> None:
    assert cl100k
    with pytest.raises(ApiError, match=r"not the model's.*nor OpenAI's cl100k_base: send texts"):
        token_ids.texts_of([ids], encoder.tokenizer)
