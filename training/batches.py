"""Which sentences each step sees: a pure function of the corpus, the seed and the step."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lattemix.build.backbones import TokenVectors
from training.corpus import SHARD_SENTENCES, Corpus


class Batches:
    """Whole sentences, shard by shard, each once an epoch.

    Nothing is remembered between steps but the shard at hand, so a run can resume at any step.
    """

    def __init__(
        self, corpus: Corpus, encode: Callable[[int], TokenVectors], size: int, seed: int
    ) -> None:
        self._encode = lru_cache(maxsize=1)(encode)  # of the shard with this index
        self._corpus, self._size, self._seed = corpus, size, seed
        sentences = np.full(corpus.shards, SHARD_SENTENCES)
        sentences[-1] = corpus.sentences - SHARD_SENTENCES * (corpus.shards - 1)
        self._steps = -(-sentences // size)  # of each shard
        self._order = lru_cache(maxsize=1)(self._order_of)

    def __call__(self, step: int) -> TokenVectors:
        """The sentences of a step, encoded."""
        epoch, position = divmod(step, int(self._steps.sum()))
        order = self._order(epoch)
        ends = np.cumsum(self._steps[order])
        place = int(np.searchsorted(ends, position, side="right"))
        shard = int(order[place])
        encoded = self._encode(shard)
        start = (position - (ends[place] - self._steps[shard])) * self._size
        shuffled = np.random.default_rng([self._seed, epoch, shard]).permutation(len(encoded))
        return encoded.take(shuffled[start : start + self._size])

    def shards(self, steps: int) -> list[int]:
        """The shards that a run of so many steps reads, in the order of its first pass."""
        order = self._order(0)
        before = np.cumsum(self._steps[order]) - self._steps[order]
        return [int(shard) for shard in order[before < steps]]

    def _order_of(self, epoch: int) -> NDArray[np.intp]:
        """Shards in the order of an epoch."""
        return np.random.default_rng([self._seed, epoch]).permutation(self._corpus.shards)
