from pathlib import Path

import numpy as np
import pytest

from lattemix.build.backbones import TokenVectors
from tests.tiny import SENTENCES
from training import corpus as corpora
from training.backbones import Backbone
from training.cache import VectorCache
from training.corpus import prepare
from training.device import Workers
from training.encoding import Batches, EncodedCorpus
from training.recipe import Recipe


@pytest.fixture
def hundred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> corpora.Corpus:
    """A hundred numbers, in shards of thirty."""
    monkeypatch.setattr(corpora, "SHARD_SENTENCES", 30)
    return prepare(map(str, range(100)), tmp_path)


def numbers(corpus: corpora.Corpus):
    """Encodes each sentence, a number, as one token with that vector."""

    def encode(index: int) -> TokenVectors:
        vectors = np.array([[float(s)] for s in corpus.shard(index)], np.float32)
        ones = np.ones(len(vectors), np.int32)
        return TokenVectors(vectors, ones, ones)

    return encode


def test_every_epoch_reads_every_sentence_once_in_another_order(
    hundred: corpora.Corpus,
) -> None:
    steps = 3 * 4 + 2  # of 8 sentences: four from each of three shards, two from the last
    epochs = {}
    for seed in (0, 1):
        batches = Batches(hundred, numbers(hundred), 8, seed)
        assert sorted(batches.shards(steps)) == [0, 1, 2, 3]
        for epoch in (0, 1):
            read = [batches(epoch * steps + step).vectors[:, 0] for step in range(steps)]
            assert sorted(np.concatenate(read)) == list(range(100))
            epochs[seed, epoch] = np.concatenate(read).tolist()
    assert len({tuple(order) for order in epochs.values()}) == 4
    # No step depends on the ones before it.
    again = Batches(hundred, numbers(hundred), 8, seed=1)
    late = again(steps + 5).vectors[:, 0]
    np.testing.assert_array_equal(late, batches(steps + 5).vectors[:, 0])


def test_short_run_reads_only_some_shards(hundred: corpora.Corpus) -> None:
    requested = []
    encode = numbers(hundred)
    batches = Batches(hundred, lambda i: requested.append(i) or encode(i), 10, seed=2)
    for step in range(4):  # one of the short shard, three of another
        batches(step)
    assert requested == batches.shards(4)
    assert len(requested) == 2


class Recording(VectorCache):
    """A cache that records which shards were encoded through it."""

    def __init__(self, directory: Path, gigabytes: float) -> None:
        super().__init__(directory, gigabytes)
        self.requested: list[list[str]] = []

    def encode(self, backbone: Backbone, sentences: list[str], *rest: object):
        self.requested.append(sentences)
        return super().encode(backbone, sentences, *rest)


@pytest.mark.parametrize(("gigabytes", "prefetched"), [(1, 2), (5e-7, 1)])
def test_workers_prefetch_their_share_unless_the_cache_is_too_small(
    encoded: EncodedCorpus,
    recipe: Recipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gigabytes: float,
    prefetched: int,
) -> None:
    monkeypatch.setattr(EncodedCorpus, "shards_read", lambda self, recipe: [0, 1, 2, 3])
    monkeypatch.setattr(type(encoded.corpus), "shard", lambda self, i: [SENTENCES[i]])
    monkeypatch.setattr(Workers, "wait", lambda self: None)
    seen = []
    for rank in (0, 1):
        cache = Recording(tmp_path / str(rank), gigabytes)
        shared = EncodedCorpus(encoded.backbone, encoded.corpus, cache)
        shared.prefetch(recipe, Workers(rank, 2))
        assert len(cache.requested) == prefetched
        seen += cache.requested
    assert len({tuple(sentences) for sentences in seen}) == 2 * prefetched
