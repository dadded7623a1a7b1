"""A backbone's vectors as an embedding of words: one vector each, whatever they stand in."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import tokenizers
from numpy.typing import NDArray
from scipy.linalg import eigh

from lattemix.build.backbones.words import TABLE, UNKNOWN
from model_store import LatteMixError
from training.backbones import Backbone
from training.cache import VectorCache

Floats = NDArray[np.float32]
Rows = NDArray[np.intp]


@dataclass(frozen=True)
class Embedding:
    """One vector of length one per word."""

    index: dict[str, int]  # word -> row
    vectors: Floats  # [V, H]

    @classmethod
    def of(cls, words: Sequence[str], vectors: Floats) -> "Embedding":
        """Take words, each one once, and their vectors [V, H] of whatever length."""
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        return cls(
            {word: row for row, word in enumerate(words)}, vectors / np.maximum(lengths, 1e-12)
        )

    @cached_property
    def mean(self) -> Floats:
        """What stands for a missing word, [H]; with another it gives that one's mean cosine."""
        mean: Floats = self.vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean

    def find(self, words: Sequence[str]) -> Rows:
        """The row of each word, as it is written or in lower case; -1 where it is missing."""
        rows = (self.index.get(word, self.index.get(word.lower(), -1)) for word in words)
        return np.fromiter(rows, np.intp, len(words))

    def look_up(self, words: Sequence[str]) -> tuple[Floats, NDArray[np.bool_]]:
        """The words' vectors [N, H], and which of them are not missing [N]."""
        rows = self.find(words)
        known = rows >= 0
        return np.where(known[:, None], self.vectors[rows], self.mean), known


def static_words(backbone: Backbone) -> Embedding:
    """The vectors of a static backbone's vocabulary."""
    checkpoint = backbone.checkpoint  # its files are sound: it was loaded from them
    vocabulary = tokenizers.Tokenizer.from_file(str(checkpoint.tokenizer)).get_vocab()
    words = sorted(vocabulary.keys() - {UNKNOWN}, key=vocabulary.__getitem__)
    table = checkpoint.tensors()[TABLE]  # [V + 1, H]
    return Embedding.of(words, table[[vocabulary[word] for word in words]])


def words_of(backbone: Backbone, cache: VectorCache, shards: Sequence[Sequence[str]]) -> Embedding:
    """A backbone's words: static vectors as they are, others as they are in these sentences."""
    if backbone.checkpoint.is_static:
        return static_words(backbone)
    return contextual_words(backbone, cache, shards)


def contextual_words(
    backbone: Backbone, cache: VectorCache, shards: Sequence[Sequence[str]]
) -> Embedding:
    """Of every word in the sentences, the first principal component of its vectors there.

    The sentences come in the lists that the cache knows them by.
    """
    tokenizer = tokenizers.Tokenizer.from_file(str(backbone.checkpoint.tokenizer))
    tokenizer.no_padding()
    tokenizer.enable_truncation(backbone.max_tokens)
    found = [_Occurrences.find(tokenizer, shard) for shard in shards]
    index: dict[str, int] = {}
    numbers = np.array(
        [index.setdefault(word, len(index)) for part in found for word in part.words], np.intp
    )
    if not index:
        raise LatteMixError(
            f"The tokenizer of {backbone.checkpoint.name} finds no words in the "
            f"{sum(map(len, shards)):,} sentences."
        )
    # All at once but in half precision, as they were cached.
    vectors = np.empty((len(numbers), backbone.hidden_size), np.float16)
    end = 0
    for shard, part in zip(shards, found, strict=True):
        start, end = end, end + len(part.words)
        vectors[start:end] = part.vectors(backbone, cache, shard)
    ends = np.cumsum(np.bincount(numbers))
    places = np.split(np.argsort(numbers, kind="stable"), ends[:-1])  # of each word
    return Embedding.of([*index], np.stack([first_component(vectors[rows]) for rows in places]))


@dataclass(frozen=True)
class _Occurrences:
    """The words of some sentences, one after another, and the tokens that make each up."""

    words: list[str]
    ids: list[int]  # of all tokens
    word_of: list[int]  # of each token, the place of its word in `words`; -1 if it has none

    @classmethod
    def find(cls, tokenizer: tokenizers.Tokenizer, sentences: Sequence[str]) -> "_Occurrences":
        """Read sentences as the backbone does, but keep where each token came from."""
        found = cls([], [], [])
        for sentence, tokens in zip(
            sentences, tokenizer.encode_batch(list(sentences)), strict=True
        ):
            found.ids.extend(tokens.ids)
            places: dict[int | None, int] = {}
            for word in sorted({number for number in tokens.word_ids if number is not None}):
                start, end = tokens.word_to_chars(word) or (0, 0)
                text = sentence[start:end].strip().lower()
                # More than a word: the tokenizer does not split at spaces.
                if len(text.split()) == 1:
                    places[word] = len(found.words)
                    found.words.append(text)
            if tokens.overflowing and places:  # the last word may have lost its end
                del places[[*places][-1]], found.words[-1]
            found.word_of.extend(places.get(number, -1) for number in tokens.word_ids)
        return found

    def vectors(self, backbone: Backbone, cache: VectorCache, sentences: Sequence[str]) -> Floats:
        """One vector per word, the mean of its tokens': [W, H]."""
        encoded = cache.encode(backbone, sentences)
        assert np.array_equal(encoded.ids, self.ids)  # both read as the backbone does
        word_of = np.array(self.word_of, np.intp)
        kept = word_of >= 0
        lengths = np.bincount(word_of[kept])  # [W]
        starts = np.cumsum(lengths) - lengths
        sums = np.add.reduceat(encoded.vectors[kept].astype(np.float32), starts)  # [W, H]
        return (sums / lengths[:, None]).astype(np.float32)


def first_component(occurrences: NDArray[np.floating]) -> Floats:
    """The first right singular vector of [n, H], uncentred: [H], of whatever length."""
    x = occurrences.astype(np.float32)
    n, width = x.shape
    if n == 1:
        return x[0]
    # From the smaller of the two products, of which only one eigenvector is needed.
    if n <= width:
        direction = eigh(x @ x.T, subset_by_index=[n - 1, n - 1])[1][:, 0] @ x
    else:
        direction = eigh(x.T @ x, subset_by_index=[width - 1, width - 1])[1][:, 0]
    # The sign of a singular vector is arbitrary, and cosines between words would be, too: the
    # one is taken that points where the occurrences do.
    signed: Floats = direction if direction @ x.mean(axis=0) >= 0 else -direction
    return signed
