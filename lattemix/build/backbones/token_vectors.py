"""Token vectors of many sentences, packed without padding."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TokenVectors:
    """The T tokens of N sentences, concatenated."""

    vectors: NDArray[np.floating]  # [T, H]
    ids: NDArray[np.int32]  # [T]
    lengths: NDArray[np.int32]  # [N]
    truncated: int = 0  # number of truncated sentences

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[NDArray[np.floating]]:
        """Yield each sentence's vectors [S, H]."""
        return iter(np.split(self.vectors, np.cumsum(self.lengths)[:-1]))

    @property
    def sentence_of(self) -> NDArray[np.intp]:
        """The index of each token's sentence: [T]."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def take(self, sentences: Sequence[int] | NDArray[np.intp]) -> "TokenVectors":
        """Return the sentences with these indices, in this order."""
        ends = np.cumsum(self.lengths)
        spans = [np.arange(ends[i] - self.lengths[i], ends[i]) for i in sentences]
        tokens = np.concatenate(spans) if spans else np.arange(0)
        return TokenVectors(self.vectors[tokens], self.ids[tokens], self.lengths[list(sentences)])

    def without(self, ids: Sequence[int]) -> "TokenVectors":
        """Return the sentences without the tokens of these ids."""
        if not ids:
            return self
        rest = ~np.isin(self.ids, ids)
        lengths = np.bincount(self.sentence_of[rest], minlength=len(self)).astype(np.int32)
        return TokenVectors(self.vectors[rest], self.ids[rest], lengths, self.truncated)

    def chunks(self, size: int) -> Iterator["TokenVectors"]:
        """Yield `size` sentences at a time."""
        ends = np.cumsum(self.lengths)
        for first in range(0, len(self), size):
            lengths = self.lengths[first : first + size]
            start = ends[first] - self.lengths[first]
            span = slice(start, start + lengths.sum())
            yield TokenVectors(self.vectors[span], self.ids[span], lengths)

    @classmethod
    def join(cls, parts: Sequence["TokenVectors"]) -> "TokenVectors":
        """Concatenate several."""
        return cls(
            np.concatenate([part.vectors for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.lengths for part in parts]),
            sum(part.truncated for part in parts),
        )
