"""Text to token ids: truncated to the model's maximum length, or split into windows."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TypeVar

import tokenizers
from tokenizers import normalizers, pre_tokenizers

from lattemix.errors import InferenceError, TextError, TooLongError
from lattemix.settings import MAX_WINDOWS, Truncate
from model_store import ArtifactError

log = logging.getLogger("lattemix")

T = TypeVar("T")

OVERLAP = 64  # tokens that neighbouring windows share

# Tokens of a text that `parse` returns at most. Models without a maximum length need this limit:
# the number of token pairs that an explanation compares is quadratic.
MAX_PARSED_TOKENS = 512
# Characters that `encode` tokenizes in half a millisecond. It holds the GIL; the batch calls
# release it, but may wait for the tokenizer's thread pool.
_SHORT = 1_000
_CACHE_BYTES = 20_000_000
_WORD_BYTES = 300  # memory of a cached word besides its characters, about


class Tokens(NamedTuple):
    """The tokens of one text."""

    ids: list[int]  # after truncation, special tokens included; before the split into windows
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
    id: int = 0


class ParsedText(NamedTuple):
    """A text's tokens with their positions."""

    tokens: Tokens
    spans: list[TokenSpan]


class Tokenizer:
    """A `tokenizer.json`; its stored padding and truncation are ignored. Thread-safe."""

    def __init__(self, path: Path, max_tokens: int | None, max_windows: int = MAX_WINDOWS) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
            self._tokenizer.no_padding()
            # Truncated below instead: the total length is needed, and either side can be cut.
            self._tokenizer.no_truncation()
            self.special_tokens = self._tokenizer.num_special_tokens_to_add(False)  # per text
            self._before, self._after = self._special_ids()
            cached = _splits_at_spaces(self._tokenizer)
            ends = self._before, self._after
            self._words = _WordCache(self._tokenizer, *ends) if cached else None
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # Rust errors are bare Exceptions, panics not even that
            raise ArtifactError(f"{path} is not a tokenizer: {error}.") from error
        self._max_tokens = max_tokens
        self._max_windows = max_windows

    @property
    def vocabulary_size(self) -> int:
        """Number of token ids."""
        return self._tokenizer.get_vocab_size()

    def __call__(self, texts: Sequence[str], truncate: Truncate = "right") -> list[Tokens]:
        """Tokenize texts; "window" leaves long ones whole, for `windows`.

        Raises:
            TooLongError: texts are too long for "error" or "window".
        """
        rows = self.ids(texts)
        self._check_lengths(rows, truncate)
        limit = None if truncate == "window" else self._max_tokens
        return [self._tokens(ids, truncate, limit) for ids in rows]

    def windows(self, text: Tokens) -> list[Tokens]:
        """Split a text over the maximum length into windows of that length.

        Neighbours share `OVERLAP` tokens, the last two at least that many. Each window has its own
        special tokens.
        """
        if self._max_tokens is None or len(text.ids) <= self._max_tokens:
            return [text]
        content = text.ids[len(self._before) : len(text.ids) - len(self._after)]
        last = len(content) - self._window_tokens
        return [
            Tokens(
                [*self._before, *content[start : start + self._window_tokens], *self._after],
                self._max_tokens,
            )
            for start in (*range(0, last, self._window_step), last)
        ]

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text, not truncated; long inputs run without the GIL."""
        with _translated_errors():
            if self._words is None:
                return _encode(self._tokenizer, texts)
            return self._words(texts)

    def decode(self, ids: list[int]) -> str | None:
        """Return the text of token ids, special tokens included; None if it has other ids."""
        before, after = len(self._before), len(self._after)
        if not self.special_tokens or max(ids, default=0) >= self.vocabulary_size:
            return None  # ids without special tokens could be another vocabulary's
        with _translated_errors():
            text: str = self._tokenizer.decode(ids[before : len(ids) - after])
        return text if self.ids([text])[0] == ids else None

    def describe(self, texts: Sequence[str], special: bool = True) -> list[list[TokenSpan]]:
        """Return all tokens of each text with their positions."""
        with _translated_errors():
            encodings = self._tokenizer.encode_batch(list(texts), add_special_tokens=special)
        return [_spans(text, encoding) for text, encoding in zip(texts, encodings, strict=True)]

    def parse(self, text: str, truncate: Truncate = "right") -> ParsedText:
        """Tokenize a text with the position of each token, in one window: "window" is "right".

        Raises:
            TooLongError: the text is too long for "error".
        """
        with _translated_errors():
            if len(text) <= _SHORT:
                encoding = self._tokenizer.encode(text)
            else:
                (encoding,) = self._tokenizer.encode_batch([text])
        limit = self._max_tokens or MAX_PARSED_TOKENS
        if truncate == "error" and len(encoding.ids) > limit:
            raise TooLongError(
                {0: _too_long(len(encoding.ids), f"the limit of {limit:,}", "right")}
            )
        spans = self._truncate(_spans(text, encoding), truncate, limit)
        tokens = self._tokens(encoding.ids, truncate, limit)
        return ParsedText(tokens._replace(per_token=True), spans)

    @property
    def _window_tokens(self) -> int:
        """Tokens of a full window, without its special tokens."""
        return max(1, (self._max_tokens or 0) - self.special_tokens)

    @property
    def _window_step(self) -> int:
        """Tokens between the starts of two windows."""
        return self._window_tokens - min(OVERLAP, self._window_tokens // 3)

    def _check_lengths(self, rows: Sequence[list[int]], truncate: Truncate) -> None:
        """Raise `TooLongError` for rows of token ids that may be neither truncated nor split."""
        if self._max_tokens is None or truncate in ("right", "left"):
            return
        longest, remedy = self._max_tokens, "window"
        limit = f"the limit of {longest:,}"
        if truncate == "window":
            longest += (self._max_windows - 1) * self._window_step
            limit = f"the {longest:,} of LATTEMIX_MAX_WINDOWS={self._max_windows:,}"
            remedy = "right"
        reasons = {
            index: _too_long(len(ids), limit, remedy)
            for index, ids in enumerate(rows)
            if len(ids) > longest
        }
        if reasons:
            raise TooLongError(reasons)

    def _tokens(self, ids: list[int], truncate: Truncate, limit: int | None) -> Tokens:
        empty = len(ids) <= self.special_tokens
        return Tokens(self._truncate(ids, truncate, limit), len(ids), empty)

    def _truncate(self, tokens: list[T], truncate: Truncate, limit: int | None) -> list[T]:
        """Remove tokens over the limit from one side, keeping the special tokens at both ends."""
        total = len(tokens)
        excess = total - (limit or total)
        if excess <= 0:
            return tokens
        first = len(self._before) if truncate == "left" else total - len(self._after) - excess
        return tokens[:first] + tokens[first + excess :]

    def _special_ids(self) -> tuple[list[int], list[int]]:
        """Special tokens before and after a text."""
        example = self._tokenizer.encode("a")
        mask, count = example.special_tokens_mask, self.special_tokens
        before = mask.index(0) if 0 in mask else count
        return example.ids[:before], example.ids[len(mask) - count + before :]


class _WordCache:
    """Token ids of words: to look one up takes a hundredth of the time of tokenizing it.

    Words are the parts of a text between spaces, with their punctuation.
    """

    def __init__(
        self, tokenizer: tokenizers.Tokenizer, before: list[int], after: list[int]
    ) -> None:
        self._tokenizer = tokenizer
        self._before, self._after = before, after  # special tokens of a text
        # Entries are never removed, since other threads may rely on them: a full dictionary is
        # replaced by an empty one.
        self._ids: dict[str, list[int]] = {"": []}
        self._bytes = 0

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the token ids of each text."""
        split = [text.split(" ") for text in texts]
        try:
            return self._look_up(split, self._ids)
        except KeyError:
            return self._look_up(split, self._with_ids(set(chain.from_iterable(split))))

    def _look_up(self, split: list[list[str]], ids: dict[str, list[int]]) -> list[list[int]]:
        before, after, ids_of = self._before, self._after, ids.__getitem__
        join = chain.from_iterable
        return [[*before, *join(map(ids_of, words)), *after] for words in split]

    def _with_ids(self, words: set[str]) -> dict[str, list[int]]:
        """Return a dictionary that holds all these words."""
        if self._bytes > _CACHE_BYTES:
            self._ids, self._bytes = {"": []}, 0
        ids = self._ids
        missing = [word for word in words if word not in ids]
        if missing:
            ids.update(zip(missing, _encode(self._tokenizer, missing, special=False), strict=True))
            self._bytes += sum(map(len, missing)) + _WORD_BYTES * len(missing)
        return ids


def _encode(
    tokenizer: tokenizers.Tokenizer, texts: Sequence[str], special: bool = True
) -> list[list[int]]:
    """Return the token ids of each text; long inputs run in parallel without the GIL."""
    if sum(map(len, texts)) <= _SHORT:
        return [tokenizer.encode(text, add_special_tokens=special).ids for text in texts]
    encodings = tokenizer.encode_batch_fast(list(texts), add_special_tokens=special)
    return [encoding.ids for encoding in encodings]


def _splits_at_spaces(tokenizer: tokenizers.Tokenizer) -> bool:
    """Whether the tokens of a text are those of its parts between spaces, one after the other."""
    splitting = (
        pre_tokenizers.BertPreTokenizer,
        pre_tokenizers.Whitespace,
        pre_tokenizers.WhitespaceSplit,
    )
    per_character = (normalizers.BertNormalizer, normalizers.Lowercase, type(None))
    return (
        isinstance(tokenizer.pre_tokenizer, splitting)
        and isinstance(tokenizer.normalizer, per_character)
        and not any(" " in token.content for token in tokenizer.get_added_tokens_decoder().values())
    )


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


def _too_long(total: int, limit: str, remedy: str) -> str:
    return f'has {total:,} tokens, more than {limit}: shorten it, or set truncate to "{remedy}"'


def _spans(text: str, encoding: tokenizers.Encoding) -> list[TokenSpan]:
    columns = zip(
        encoding.tokens,
        encoding.offsets,
        encoding.word_ids,
        encoding.special_tokens_mask,
        encoding.ids,
        strict=True,
    )
    return [
        TokenSpan(token, *_stripped(text, *offsets), None if special else word, bool(special), id_)
        for token, offsets, word, special, id_ in columns
    ]


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
