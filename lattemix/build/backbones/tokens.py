"""The token vectors of many sentences, packed: what every backbone gives."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TokenVectors:
    """N sentences of T tokens in all, one sentence after another, without padding."""

    vectors: NDArray[np.floating]  # [T, H]
    ids: NDArray[np.int32]  # [T], in the backbone's vocabulary
    lengths: NDArray[np.int32]  # [N]
    truncated: int = 0  # sentences that were longer than the backbone reads

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[NDArray[np.floating]]:
        """Each sentence's vectors [S, H]."""
        return iter(np.split(self.vectors, np.cumsum(self.lengths)[:-1]))

    @property
    def sentence_of(self) -> NDArray[np.intp]:
        """The index of the sentence each token is in, [T]."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def take(self, sentences: Sequence[int] | NDArray[np.intp]) -> "TokenVectors":
        """Some of the sentences, in the order given."""
        ends = np.cumsum(self.lengths)
        spans = [np.arange(ends[i] - self.lengths[i], ends[i]) for i in sentences]
        tokens = np.concatenate(spans) if spans else np.arange(0)
        return TokenVectors(self.vectors[tokens], self.ids[tokens], self.lengths[list(sentences)])

    def without(self, token: int | None) -> "TokenVectors":
        """The same sentences without one of the vocabulary's tokens."""
        if token is None:
            return self
        kept = self.ids != token
        lengths = np.bincount(self.sentence_of[kept], minlength=len(self)).astype(np.int32)
        return TokenVectors(self.vectors[kept], self.ids[kept], lengths, self.truncated)

    def chunks(self, size: int) -> Iterator["TokenVectors"]:
        """The sentences, `size` at a time."""
        ends = np.cumsum(self.lengths)
        for first in range(0, len(self), size):
            lengths = self.lengths[first : first + size]
            start = ends[first] - self.lengths[first]
            span = slice(start, start + lengths.sum())
            yield TokenVectors(self.vectors[span], self.ids[span], lengths)

    @classmethod
    def join(cls, parts: Sequence["TokenVectors"]) -> "TokenVectors":
        """Several of them, one after another."""
        return cls(
            np.concatenate([part.vectors for part in parts]),
            np.concatenate([part.ids for part in parts]),
            np.concatenate([part.lengths for part in parts]),
            sum(part.truncated for part in parts),
        )
