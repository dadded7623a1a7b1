import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from lattemix.build.backbones import Checkpoint, TokenVectors
from model_store import LatteMixError
from tests.tiny import SENTENCES
from training.backbones import Advance, Backbone, load
from training.cache import VectorCache


class Counting:
    """A backbone that counts calls of `encode`."""

    def __init__(self, backbone: Backbone) -> None:
        self.backbone, self.calls = backbone, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self.backbone, name)

    def encode(
        self, sentences: Sequence[str], exact: bool = False, advance: Advance | None = None
    ) -> TokenVectors:
        self.calls += 1
        return self.backbone.encode(sentences, exact, advance)


@pytest.fixture
def counting(checkpoint: Checkpoint) -> Counting:
    return Counting(load(checkpoint, 16))


def test_encodes_once_and_then_reads_from_disk(counting: Counting, tmp_path: Path) -> None:
    first = VectorCache(tmp_path).encode(counting, SENTENCES)
    second = VectorCache(tmp_path).encode(counting, SENTENCES)
    assert counting.calls == 1
    np.testing.assert_array_equal(first.vectors, second.vectors)
    np.testing.assert_array_equal(first.lengths, second.lengths)
    np.testing.assert_array_equal(first.ids, second.ids)
    exact = counting.encode(SENTENCES)
    assert first.vectors.dtype == np.float16
    np.testing.assert_allclose(first.vectors, exact.vectors, atol=2e-3)


def test_sentences_layer_and_max_tokens_identify_an_entry(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    cache = VectorCache(tmp_path)
    cache.encode(load(checkpoint, 16), SENTENCES)
    for backbone in (load(checkpoint, 16, layer=1), load(checkpoint, 4)):
        cache.encode(backbone, SENTENCES)
    cache.encode(load(checkpoint, 16), SENTENCES[::-1])
    assert len(list(tmp_path.rglob("*.st"))) == 4


def test_counts_truncated_sentences(checkpoint: Checkpoint, tmp_path: Path) -> None:
    for _ in range(2):  # encoded, then from disk
        tokens = VectorCache(tmp_path).encode(load(checkpoint, 5), SENTENCES)
        assert tokens.lengths.max() == 5
        assert tokens.truncated == sum(len(sentence.split()) > 3 for sentence in SENTENCES)


def test_removes_least_recently_used_files_above_the_limit(
    counting: Counting, tmp_path: Path
) -> None:
    cache = VectorCache(tmp_path)
    for n, sentence in enumerate(SENTENCES[:3]):
        cache.encode(counting, [sentence])
        os.utime(cache._path(counting, [sentence]), (n, n))
    cache.encode(counting, SENTENCES[:1])  # used again: now the newest
    size = sum(path.stat().st_size for path in tmp_path.rglob("*.st"))
    tight = VectorCache(tmp_path, gigabytes=size / 1e9)
    tight.encode(counting, SENTENCES[3:4])
    held = [tight.holds(counting, [sentence]) for sentence in SENTENCES[:4]]
    assert held == [True, False, True, True]


def test_writes_nothing_larger_than_the_limit(counting: Counting, tmp_path: Path) -> None:
    cache = VectorCache(tmp_path, gigabytes=0)
    assert len(cache.encode(counting, SENTENCES)) == 10
    assert not list(tmp_path.rglob("*.st"))


def test_encodes_again_if_a_file_is_damaged(counting: Counting, tmp_path: Path) -> None:
    cache = VectorCache(tmp_path)
    cache.encode(counting, SENTENCES)
    (path,) = tmp_path.rglob("*.st")
    path.write_bytes(path.read_bytes()[:50])
    assert len(cache.encode(counting, SENTENCES)) == 10
    assert counting.calls == 2


def test_rejects_vectors_that_are_not_finite(
    counting: Counting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = counting.encode(SENTENCES)
    encoded.vectors[encoded.lengths[:3].sum() + 1] = np.nan
    monkeypatch.setattr(counting, "encode", lambda sentences, **_: encoded)
    with pytest.raises(LatteMixError, match=r"not finite .* layer 2, first for 'a dog is running"):
        VectorCache(tmp_path).encode(counting, SENTENCES)
    assert not list(tmp_path.rglob("*.st"))


def test_prefetches_several_layers_in_one_pass(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, cache = load(checkpoint, 16), VectorCache(tmp_path)
    layers = [backbone.at(layer) for layer in (0, 1, 2)]
    expected = [load(checkpoint, 16, layer).encode(SENTENCES).vectors for layer in (0, 1, 2)]
    cache.prefetch(layers, [SENTENCES], 10**12)  # more than it can hold
    assert not any(cache.holds(layer, SENTENCES) for layer in layers)
    cache.encode(layers[1], SENTENCES)
    cache.prefetch(layers, [SENTENCES], 10)
    assert all(cache.holds(layer, SENTENCES) for layer in layers)
    monkeypatch.setattr(type(backbone), "_encode", None)  # no more passes are needed
    cache.prefetch(layers, [SENTENCES], 10)
    for layer, vectors in zip(layers, expected, strict=True):
        cached = cache.encode(layer, SENTENCES).vectors
        np.testing.assert_array_equal(cached, vectors.astype(np.float16))


def test_tokenizer_identifies_an_entry(
    backbone: Path, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    cache = VectorCache(tmp_path / "cache")
    cache.encode(load(checkpoint, 16), SENTENCES)
    other = tmp_path / "other"
    shutil.copytree(backbone, other)
    assert cache.holds(load(Checkpoint.read(other), 16), SENTENCES)
    tokenizer = other / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace('"dog"', '"hound"'))
    assert not cache.holds(load(Checkpoint.read(other), 16), SENTENCES)
