"""A corpus as token vectors: encoded by shards through the cache, read in batches."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from lattemix.build.backbones import TokenVectors
from lattemix.build.distill import open_origin
from lattemix.build.head import STATISTICS_SENTENCES, Head
from training.backbones import Advance, Backbone, load
from training.cache import VectorCache
from training.corpus import SHARD_SENTENCES, Corpus, prepare
from training.device import Workers
from training.exclusion import Exclusion
from training.progress import progress_bar
from training.readers import read
from training.recipe import Recipe


class Batches:
    """The batch of every step: whole sentences, each once per epoch, in random order.

    A batch depends only on the corpus, the seed and the step, so a run can resume at any step.
    """

    def __init__(
        self, corpus: Corpus, encode: Callable[[int], TokenVectors], size: int, seed: int
    ) -> None:
        """Prepare to read `size` sentences per step; `encode` returns a shard by its index."""
        self._encode = lru_cache(maxsize=1)(encode)
        self._size, self._seed = size, seed
        sizes = np.array([corpus.shard_size(index) for index in range(corpus.shards)])
        self._steps = -(-sizes // size)  # per shard

    def __call__(self, step: int) -> TokenVectors:
        """The sentences of a step."""
        epoch, position = divmod(step, int(self._steps.sum()))
        order, ends = self._epoch(epoch)
        index = int(np.searchsorted(ends, position, side="right"))
        shard = int(order[index])
        start = (position - (ends[index] - self._steps[shard])) * self._size
        tokens = self._encode(shard)
        shuffled = np.random.default_rng([self._seed, epoch, shard]).permutation(len(tokens))
        return tokens.take(shuffled[start : start + self._size])

    def shards(self, steps: int) -> list[int]:
        """The shards that a run of `steps` reads, in the order of its first epoch."""
        order, ends = self._epoch(0)
        return [int(shard) for shard in order[ends - self._steps[order] < steps]]

    def _epoch(self, epoch: int) -> tuple[np.ndarray, np.ndarray]:
        """The order of the shards in an epoch, and the step after each."""
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._steps))
        return order, np.cumsum(self._steps[order])


class EncodedCorpus:
    """A corpus encoded by a backbone, one shard at a time."""

    def __init__(self, backbone: Backbone, corpus: Corpus, cache: VectorCache) -> None:
        self.backbone, self.corpus, self.cache = backbone, corpus, cache

    def shard(self, index: int, advance: Advance | None = None) -> TokenVectors:
        """The token vectors of one shard, without ignored ones."""
        tokens = self.cache.encode(self.backbone, self.corpus.shard(index), advance)
        return tokens.without(self.backbone.checkpoint.ignored_ids)

    def batches(self, recipe: Recipe) -> Batches:
        """The batches of a run."""
        return Batches(self.corpus, self.shard, recipe.batch_sentences, recipe.seed)

    def shards_read(self, recipe: Recipe) -> list[int]:
        """The shards that a run reads, in the order of its first epoch."""
        return self.batches(recipe).shards(recipe.total_steps(self.corpus.sentences))

    def sample(self, recipe: Recipe) -> TokenVectors:
        """The first shards that a run reads, enough sentences for statistics."""
        shards = self.shards_read(recipe)[: STATISTICS_SENTENCES // SHARD_SENTENCES]
        return TokenVectors.join([self.shard(index) for index in shards])

    def first(self, count: int) -> TokenVectors:
        """The first `count` sentences of the corpus, a random sample."""
        shards = range(min(self.corpus.shards, -(-count // SHARD_SENTENCES)))
        tokens = TokenVectors.join([self.shard(index) for index in shards])
        return tokens.take(np.arange(min(count, len(tokens))))

    def prefetch(self, recipe: Recipe, workers: Workers) -> None:
        """Encode this worker's share of what a run reads, unless the cache cannot hold it all."""
        shards = self.shards_read(recipe)
        share = shards[workers.rank :: workers.count]
        sentences = sum(map(self.corpus.shard_size, share))
        bar = progress_bar("Encoding", "sentences", total=sentences, shown=workers.is_first)
        for index in share:
            size = self.shard(index, bar.update).vectors.nbytes
            if index == share[0] and size * len(shards) > self.cache.limit:
                break  # it would be evicted before training reads it
        bar.close()
        workers.wait()


@contextmanager
def open_corpus(
    head: Head,
    files: Sequence[Path],
    cache: VectorCache,
    columns: Sequence[str] = (),
    exclusion: Exclusion | None = None,
    backbone: str | None = None,
) -> Iterator[EncodedCorpus]:
    """Open a corpus as a finished head's backbone encodes it, sampled as in the head's training."""
    with (
        open_origin(head.spec.backbone, backbone) as checkpoint,
        TemporaryDirectory() as temporary,
    ):
        limit = Recipe(**head.spec.recipe).max_sentences
        corpus = prepare(read(files, columns), Path(temporary), limit, exclusion)
        loaded = load(checkpoint, head.spec.max_tokens, head.spec.backbone.layer)
        yield EncodedCorpus(loaded, corpus, cache)
