"""Texts of the token ids that some clients send instead of texts."""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

from app.errors import ApiError
from lattemix.tokenization import Tokenizer

log = logging.getLogger("lattemix")

_REMEDY = (
    "send texts. LangChain's OpenAIEmbeddings does so with check_embedding_ctx_length=False; "
    "for its default, install lattemix[tiktoken] on the server"
)


def texts_of(rows: Sequence[list[int]], tokenizer: Tokenizer) -> list[str]:
    """Return the texts of token ids; raise `ApiError` for ids whose text is not certain.

    The ids are the model's own, special tokens included, or those of OpenAI's cl100k_base, which
    LangChain sends. Other vocabularies have the same ids for other words: a text is accepted only
    if it gives the same ids again.
    """
    return [_text(index, ids, tokenizer) for index, ids in enumerate(rows)]


def _text(index: int, ids: list[int], tokenizer: Tokenizer) -> str:
    text = tokenizer.decode(ids)
    if text is None:
        text = _cl100k_text(ids)
    if text is None:
        raise ApiError(
            "Validation",
            f"input[{index}]: these token ids are not the model's, special tokens included: "
            f"{_REMEDY}.",
            field="input",
        )
    return text


def _cl100k_text(ids: list[int]) -> str | None:
    encoding = _cl100k()
    if encoding is None:
        return None
    try:
        text: str = encoding.decode(ids, errors="strict")
    except (KeyError, OverflowError, UnicodeDecodeError):
        return None
    return text if encoding.encode(text, disallowed_special=()) == ids else None


@cache
def _cl100k() -> Any:
    """Return OpenAI's tokenizer; None if it is not installed or its vocabulary is out of reach."""
    try:
        import tiktoken

        return tiktoken.get_encoding("cl100k_base")
    except ModuleNotFoundError:
        return None
    except Exception as error:  # tiktoken downloads the vocabulary
        log.warning("cl100k_base cannot be loaded, see TIKTOKEN_CACHE_DIR: %s", error)
        return None
