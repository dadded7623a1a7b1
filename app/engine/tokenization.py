"""Text to token ids, cut at the model's limit, and honest about the cut."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import tokenizers

from app.engine.errors import TextError
from model_store import ArtifactError

Side = Literal["right", "left"]

_FEW = 4  # texts that need not wait for the tokenizer's threads, which may have others


class Tokens(NamedTuple):
    """One text as the model sees it."""

    ids: list[int]  # what is read, special tokens included
    total: int  # what there was to read
    empty: bool = False  # nothing but special tokens

    @property
    def truncated(self) -> bool:
        """Whether the model reads only a part."""
        return self.total > len(self.ids)


class Tokenizer:
    """A `tokenizer.json` with its stored padding and truncation replaced by the model's own."""

    def __init__(self, path: Path, max_tokens: int) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the Rust side raises bare Exception for whatever it dislikes
            raise ArtifactError(f"{path} is not a tokenizer: {error}.") from error
        self._tokenizer.no_padding()
        # Cut by hand below: so the length of the whole is known, and either side can be cut.
        self._tokenizer.no_truncation()
        self._max_tokens = max_tokens
        self._before, self._after = self._special_tokens()

    @property
    def vocabulary_size(self) -> int:
        """Every id is below this."""
        return self._tokenizer.get_vocab_size()

    def __call__(self, texts: Sequence[str], cut: Side = "right") -> list[Tokens]:
        """Tokenize texts, many in parallel and without the GIL; `cut` is the side that loses."""
        try:
            if len(texts) <= _FEW:
                encodings = [self._tokenizer.encode(text) for text in texts]
            else:
                encodings = self._tokenizer.encode_batch_fast(list(texts))
        except TypeError:  # what the Rust side makes of a lone surrogate
            raise TextError("A text is not valid Unicode: it holds a lone surrogate.") from None
        return [self._fit(encoding.ids, cut) for encoding in encodings]

    def _fit(self, ids: list[int], cut: Side) -> Tokens:
        total, special = len(ids), self._before + self._after
        excess = total - self._max_tokens
        if excess > 0:  # the special tokens at both ends stay
            first = total - self._after - excess if cut == "right" else self._before
            ids = ids[:first] + ids[first + excess :]
        return Tokens(ids, total, empty=total <= special)

    def _special_tokens(self) -> tuple[int, int]:
        """How many special tokens stand before a text, and how many after it."""
        mask = self._tokenizer.encode("a").special_tokens_mask
        count = self._tokenizer.num_special_tokens_to_add(False)
        before = mask.index(0) if 0 in mask else count
        return before, count - before


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
