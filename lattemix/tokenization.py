"""Text to token ids, truncated to the model's maximum length."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import tokenizers

from lattemix.errors import InferenceError, TextError
from model_store import ArtifactError

log = logging.getLogger("lattemix")

T = TypeVar("T")

Side = Literal["right", "left"]

# Characters that `encode` tokenizes in half a millisecond. It holds the GIL; the batch calls
# release it, but may wait for the tokenizer's thread pool.
_SHORT = 1_000


class Tokens(NamedTuple):
    """The tokens of one text."""

    ids: list[int]  # after truncation, special tokens included
    total: int  # before truncation
    empty: bool = False  # special tokens only
    per_token: bool = False  # request the mixture of every token instead of the text's

    @property
    def truncated(self) -> bool:
        """Whether tokens were removed."""
        return self.total > len(self.ids)


class TokenSpan(NamedTuple):
    """A token and its position in the text."""

    token: str  # vocabulary entry
    start: int  # character offset
    end: int
    word: int | None  # index of its word in the text
    special: bool  # added by the tokenizer


class ParsedText(NamedTuple):
    """A text's tokens with their positions."""

    tokens: Tokens
    spans: list[TokenSpan]


class Tokenizer:
    """A `tokenizer.json`; its stored padding and truncation are ignored."""

    def __init__(self, path: Path, max_tokens: int) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
            self._tokenizer.no_padding()
            # Truncated below instead: the total length is needed, and either side can be cut.
            self._tokenizer.no_truncation()
            self._before, self._after = self._special_tokens()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # Rust errors are bare Exceptions, panics not even that
            raise ArtifactError(f"{path} is not a tokenizer: {error}.") from error
        self._max_tokens = max_tokens

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids."""
        return self._tokenizer.get_vocab_size()

    def __call__(self, texts: Sequence[str], side: Side = "right") -> list[Tokens]:
        """Tokenize texts, truncating at `side`; long inputs run in parallel without the GIL."""
        with _translated_errors():
            if sum(map(len, texts)) <= _SHORT:
                encodings = [self._tokenizer.encode(text) for text in texts]
            else:
                encodings = self._tokenizer.encode_batch_fast(list(texts))
        return [self._tokens(encoding.ids, side) for encoding in encodings]

    def parse(self, text: str, side: Side = "right") -> ParsedText:
        """Tokenize a text with the position of each token."""
        with _translated_errors():
            if len(text) <= _SHORT:
                encoding = self._tokenizer.encode(text)
            else:
                (encoding,) = self._tokenizer.encode_batch([text])
        columns = zip(
            self._truncate(encoding.tokens, side),
            self._truncate(encoding.offsets, side),
            self._truncate(encoding.word_ids, side),
            self._truncate(encoding.special_tokens_mask, side),
            strict=True,
        )
        spans = [
            TokenSpan(token, *_stripped(text, *offsets), None if special else word, bool(special))
            for token, offsets, word, special in columns
        ]
        return ParsedText(self._tokens(encoding.ids, side)._replace(per_token=True), spans)

    def _tokens(self, ids: list[int], side: Side) -> Tokens:
        special = self._before + self._after
        return Tokens(self._truncate(ids, side), len(ids), empty=len(ids) <= special)

    def _truncate(self, tokens: list[T], side: Side) -> list[T]:
        """Remove tokens over the limit from one side, keeping the special tokens at both ends."""
        total = len(tokens)
        excess = total - self._max_tokens
        if excess <= 0:
            return tokens
        first = total - self._after - excess if side == "right" else self._before
        return tokens[:first] + tokens[first + excess :]

    def _special_tokens(self) -> tuple[int, int]:
        """Number of special tokens before and after a text."""
        mask = self._tokenizer.encode("a").special_tokens_mask
        count = self._tokenizer.num_special_tokens_to_add(False)
        before = mask.index(0) if 0 in mask else count
        return before, count - before


@contextmanager
def _translated_errors() -> Iterator[None]:
    """Raise our errors for those of the Rust tokenizer."""
    try:
        yield
    except TypeError:
        raise TextError("A text is not valid Unicode: it holds a lone surrogate.") from None
    except (Exception, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as panic:
        # Log only the type: a Rust panic message can quote the text.
        log.error("The tokenizer failed: %s", type(panic).__name__)
        raise InferenceError from None


def _stripped(text: str, start: int, end: int) -> tuple[int, int]:
    """Exclude surrounding whitespace, which some tokenizers include in a token's span."""
    span = text[start:end]
    start += len(span) - len(span.lstrip())
    return start, start + len(span.strip())


def slices(texts: Sequence[str], max_characters: int) -> Iterator[list[str]]:
    """Split texts, in order, into lists of at most `max_characters`, or of one text."""
    part: list[str] = []
    characters = 0
    for text in texts:
        if part and characters + len(text) > max_characters:
            yield part
            part, characters = [], 0
        part.append(text)
        characters += len(text)
    if part:
        yield part
