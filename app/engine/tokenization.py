"""Text to token ids, cut at the model's limit, and honest about the cut."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import tokenizers

from app.engine.errors import InferenceError, TextError
from model_store import ArtifactError

log = logging.getLogger("lattemix")

T = TypeVar("T")

Side = Literal["right", "left"]

# Characters that `encode` tokenizes in half a millisecond. It holds the GIL; the batch calls do
# not, but may have to wait for the tokenizer's threads.
_SHORT = 1_000


class Tokens(NamedTuple):
    """One text as the model sees it."""

    ids: list[int]  # what is read, special tokens included
    total: int  # what there was to read
    empty: bool = False  # nothing but special tokens
    each: bool = False  # the mixture of every token is wanted, not that of the text

    @property
    def truncated(self) -> bool:
        """Whether the model reads only a part."""
        return self.total > len(self.ids)


class Piece(NamedTuple):
    """A token, and where in its text it stands."""

    token: str  # as the vocabulary spells it
    start: int  # characters
    end: int
    word: int | None  # the place of its word in the text, if it has one
    special: bool  # the tokenizer's own


class Parsed(NamedTuple):
    """A text as the model sees it, token by token."""

    tokens: Tokens
    pieces: list[Piece]


class Tokenizer:
    """A `tokenizer.json` with its stored padding and truncation replaced by the model's own."""

    def __init__(self, path: Path, max_tokens: int) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
            self._tokenizer.no_padding()
            # Cut by hand below: so the length of the whole is known, and either side can be cut.
            self._tokenizer.no_truncation()
            self._before, self._after = self._special_tokens()
        except (KeyboardInterrupt, SystemExit):
            raise
        # The Rust side raises bare Exception for what it dislikes, and where it panics, not even.
        except BaseException as error:
            raise ArtifactError(f"{path} is not a tokenizer: {error}.") from error
        self._max_tokens = max_tokens

    @property
    def vocabulary_size(self) -> int:
        """Every id is below this."""
        return self._tokenizer.get_vocab_size()

    def __call__(self, texts: Sequence[str], cut: Side = "right") -> list[Tokens]:
        """Tokenize texts, in parallel and without the GIL if they are long.

        `cut` is the side to truncate.
        """
        with _failing_clearly():
            if sum(map(len, texts)) <= _SHORT:
                encodings = [self._tokenizer.encode(text) for text in texts]
            else:
                encodings = self._tokenizer.encode_batch_fast(list(texts))
        return [self._fit(encoding.ids, cut) for encoding in encodings]

    def parse(self, text: str, cut: Side = "right") -> Parsed:
        """Tokenize a text, with the position of each token in it."""
        with _failing_clearly():
            if len(text) <= _SHORT:
                encoding = self._tokenizer.encode(text)
            else:
                (encoding,) = self._tokenizer.encode_batch([text])
        parts = zip(
            self._cut(encoding.tokens, cut),
            self._cut(encoding.offsets, cut),
            self._cut(encoding.word_ids, cut),
            self._cut(encoding.special_tokens_mask, cut),
            strict=True,
        )
        pieces = [
            Piece(token, *_trimmed(text, *span), None if special else word, bool(special))
            for token, span, word, special in parts
        ]
        return Parsed(self._fit(encoding.ids, cut)._replace(each=True), pieces)

    def _fit(self, ids: list[int], cut: Side) -> Tokens:
        special = self._before + self._after
        return Tokens(self._cut(ids, cut), len(ids), empty=len(ids) <= special)

    def _cut(self, tokens: list[T], cut: Side) -> list[T]:
        """What the model reads of them; the special ones at both ends stay."""
        total = len(tokens)
        excess = total - self._max_tokens
        if excess <= 0:
            return tokens
        first = total - self._after - excess if cut == "right" else self._before
        return tokens[:first] + tokens[first + excess :]

    def _special_tokens(self) -> tuple[int, int]:
        """How many special tokens stand before a text, and how many after it."""
        mask = self._tokenizer.encode("a").special_tokens_mask
        count = self._tokenizer.num_special_tokens_to_add(False)
        before = mask.index(0) if 0 in mask else count
        return before, count - before


@contextmanager
def _failing_clearly() -> Iterator[None]:
    """Make errors of ours of what the Rust side raises."""
    try:
        yield
    except TypeError:
        raise TextError("A text is not valid Unicode: it holds a lone surrogate.") from None
    except (Exception, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as panic:
        # Only the type: what Rust says when it panics can quote the text.
        log.error("The tokenizer failed: %s", type(panic).__name__)
        raise InferenceError from None


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """A token's place without the blanks around it, which some tokenizers count as its own."""
    span = text[start:end]
    start += len(span) - len(span.lstrip())
    return start, start + len(span.strip())


def slices(texts: Sequence[str], most: int) -> Iterator[list[str]]:
    """The texts in order, in parts of at most so many characters, or of one text."""
    part: list[str] = []
    characters = 0
    for text in texts:
        if part and characters + len(text) > most:
            yield part
            part, characters = [], 0
        part.append(text)
        characters += len(text)
    if part:
        yield part
