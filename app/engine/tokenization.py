"""Text to token ids, cut at the model's limit, and honest about the cut."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import tokenizers

from model_store import ArtifactError, LatteMixError


class TextError(LatteMixError):
    """A text that no tokenizer can read."""


class EmptyTextError(TextError):
    """A text in which the model finds nothing to read; `index` is its place in the list."""

    reason = "is empty: the model finds no words in it"

    def __init__(self, index: int) -> None:
        super().__init__(f"Text {index + 1} {self.reason}.")
        self.index = index


class Tokens(NamedTuple):
    """One text as the model sees it."""

    ids: list[int]
    truncated: bool
    empty: bool  # nothing but special tokens


class Tokenizer:
    """A `tokenizer.json` with its stored padding and truncation replaced by the model's own."""

    def __init__(self, path: Path, max_tokens: int) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the Rust side raises bare Exception for whatever it dislikes
            raise ArtifactError(f"{path} is not a tokenizer: {error}.") from error
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self._special_tokens = self._tokenizer.num_special_tokens_to_add(False)

    @property
    def vocabulary_size(self) -> int:
        """Every id is below this."""
        return self._tokenizer.get_vocab_size()

    def __call__(self, texts: Sequence[str]) -> list[Tokens]:
        """Tokenize a batch, in parallel and without the GIL."""
        try:
            encodings = self._tokenizer.encode_batch_fast(list(texts))
        except TypeError:  # what the Rust side makes of a lone surrogate
            raise TextError("A text is not valid Unicode: it holds a lone surrogate.") from None
        return [
            Tokens(e.ids, bool(e.overflowing), len(e.ids) <= self._special_tokens)
            for e in encodings
        ]
