from pathlib import Path

import numpy as np
import pytest

from training import corpus as corpora
from training.corpus import Corpus, CorpusError, prepare
from training.exclusion import Exclusion


def everything(corpus: Corpus) -> list[str]:
    return [sentence for index in range(corpus.shards) for sentence in corpus.shard(index)]


def test_sentences_are_distinct_shuffled_and_in_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpora, "SHARD_SENTENCES", 64)
    lines = ["same", " same ", "", "two  words", "two words", *map(str, range(1000))]
    corpus = prepare(lines, tmp_path)
    sentences = everything(corpus)
    assert corpus.sentences == len(sentences) == 1002
    assert set(sentences) == {"same", "two words", *map(str, range(1000))}
    assert [len(corpus.shard(i)) for i in range(corpus.shards)] == [64] * 15 + [42]
    numbers = [int(s) for s in sentences if s.isdigit()]
    assert abs(np.corrcoef(numbers, range(1000))[0, 1]) < 0.1
    assert corpus.first(100) == sentences[:100]
    assert Corpus.open(tmp_path) == corpus
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == set()


def test_digest_depends_on_the_sentences_but_not_their_order(tmp_path: Path) -> None:
    lines = [f"sentence {i}" for i in range(500)]
    first = prepare(lines, tmp_path / "a")
    assert prepare(lines[::-1] * 2, tmp_path / "b").sha256 == first.sha256
    assert everything(Corpus.open(tmp_path / "b")) == everything(first)
    assert prepare([*lines[:-1], "other"], tmp_path / "c").sha256 != first.sha256


def test_limit_draws_a_uniform_sample(tmp_path: Path) -> None:
    kept = prepare(map(str, range(20_000)), tmp_path, limit=6_000)
    numbers = [int(sentence) for sentence in everything(kept)]
    tenths, _ = np.histogram(numbers, 10, (0, 20_000))
    assert tenths.sum() == 6_000
    assert abs(tenths / 2_000 - 0.3).max() < 0.04


def test_drops_and_counts_excluded_sentences(tmp_path: Path) -> None:
    lines = ["A dog.", "a dog", "a dog", "a cat", "a bird", "a fish"]
    exclusion = Exclusion(["A DOG!", "a fish", "a horse"])
    corpus = prepare(lines, tmp_path / "a", exclusion=exclusion)
    assert set(everything(corpus)) == {"a cat", "a bird"}
    assert corpus.excluded == 3  # "A dog.", "a dog", "a fish"
    assert Corpus.open(tmp_path / "a") == corpus
    assert corpus.exclusion_sha256 == exclusion.sha256
    assert corpus.sha256 == prepare(["a cat", "a bird"], tmp_path / "b").sha256
    limited = prepare(lines, tmp_path / "c", limit=2, exclusion=exclusion)
    assert (limited.sentences, limited.excluded) == (2, 3)


def test_does_not_open_an_incomplete_corpus(tmp_path: Path) -> None:
    def broken():
        yield from map(str, range(10))
        raise CorpusError("cut short")

    prepare(["an", "older", "one"], tmp_path)
    with pytest.raises(CorpusError, match="cut short"):
        prepare(broken(), tmp_path)
    assert Corpus.open(tmp_path) is None


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([], "has 0 distinct"),
        (["\n", " "], "has 0 distinct"),
        (["a", "a"], "has 1 distinct"),
    ],
)
def test_rejects_fewer_than_two_sentences(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(CorpusError, match=message):
        prepare(lines, tmp_path)
