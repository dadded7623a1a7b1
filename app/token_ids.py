"""Texts of the token ids that some clients send instead of texts."""

import logging
from collections.abc import Sequence
from functools import cache
from typing import Any

from app.errors import ApiError
from lattemix.tokenization import Tokenizer

log = logging.getLogger("lattemix")

_CONTINUATIONS = bytes(range(0x80, 0xC0))  # UTF-8 bytes that do not begin a character

# Tokens at both ends of a chunk of a longer text whose ids may differ: the text was cut between
# them, perhaps inside a character.
_EDGE = 8

_HINT = (
    "; its default needs lattemix[tiktoken] on the server, and a vocabulary (TIKTOKEN_CACHE_DIR)"
)


def texts_of(rows: Sequence[list[int]], tokenizer: Tokenizer) -> list[str]:
    """Return the texts of token ids; raise `ApiError` for ids whose text is not certain.

    The ids are the model's own, special tokens included, or those of OpenAI's cl100k_base, which
    LangChain sends. Other vocabularies have the same ids for other words: a text is accepted only
    if it gives the same ids again, apart from the ends of a chunk.
    """
    return [_text(index, ids, tokenizer) for index, ids in enumerate(rows)]


def _text(index: int, ids: list[int], tokenizer: Tokenizer) -> str:
    text = tokenizer.decode(ids)
    if text is None:
        text = _cl100k_text(ids)
    if text is None:
        others = "" if _cl100k() is None else ", nor OpenAI's cl100k_base"
        hint = "" if others else _HINT
        raise ApiError(
            "Validation",
            f"input[{index}]: these token ids are not the model's, special tokens included{others}"
            ": send texts. LangChain's OpenAIEmbeddings does so with "
            f"check_embedding_ctx_length=False{hint}.",
            field="input",
        )
    return text


def _cl100k_text(ids: list[int]) -> str | None:
    encoding = _cl100k()
    if encoding is None:
        return None
    try:
        content: bytes = encoding.decode_bytes(ids)
    except (KeyError, OverflowError):
        return None
    # LangChain cuts long texts between tokens: the first and last character may be incomplete.
    text = content.lstrip(_CONTINUATIONS).decode("utf-8", "ignore")
    if len(content) - len(text.encode()) > 2 * 3:
        return None
    return text if _equal_inside(encoding.encode(text, disallowed_special=()), ids) else None


def _equal_inside(found: list[int], ids: list[int]) -> bool:
    """Whether two lists of ids are equal, apart from the ends of long ones."""
    middle = ids[_EDGE:-_EDGE]
    return found == ids or (
        bool(middle) and any(found[at : at + len(middle)] == middle for at in range(2 * _EDGE + 1))
    )


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
