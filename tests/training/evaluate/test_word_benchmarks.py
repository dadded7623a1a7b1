from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from model_store import LatteMixError
from training.evaluate import word_benchmarks
from training.evaluate.word_benchmarks import (
    Analogies,
    Categories,
    Embedding,
    Relations,
    Similarity,
    WordScore,
    purity,
    read_benchmarks,
)

NAMES = ["simlex999", "men", "ws353", "rw", "google", "msr", "semeval2012_2", "ap", "bless"]

PLANE = Embedding.of(["right", "up", "between"], np.array([[2, 0], [0, 1], [0.6, 0.8]], np.float32))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder in the benchmarks' layouts."""
    for name in ("SIMLEX-999", "MEN-TR-3k", "RW-STANFORD"):
        (tmp_path / f"EN-{name}.txt").write_text("old\tnew\t1.58\nsmart\tclever\t9.2\n")
    (tmp_path / "EN-WS-353-ALL.txt").write_bytes(b"love\tsex\t6.77\r\ntiger\ttiger\t10.00\r\n")
    four = ",type,word1,word2,word3,target\n"
    for name in ("google-analogies", "msr"):
        questions = "0,capital,Athens,Greece,Oslo,Norway\n1,plural,cat,cats,dog,dogs\n"
        (tmp_path / f"analogy-{name}.csv").write_text(four + questions)
    rows = ["5h, catch,elusive,eat,edible", "5h,fix,broken,eat,edible", "5h,fix,broken,see,dim"]
    rows += ["2c,mile,yard,hour,minute"]
    numbered = "".join(f"{number},{row}\n" for number, row in enumerate(rows))
    (tmp_path / "analogy-semeval.csv").write_text(four + numbered)
    for name in ("ap", "bless"):
        path = tmp_path / f"categorization-{name}.csv"
        path.write_text(",category,word\n0,tree,oak\n1,tree,elm\n2,bird,owl\n")
    return tmp_path


def test_reads_every_benchmark(data: Path) -> None:
    left_out: list[str] = []
    benchmarks = {benchmark.name: benchmark for benchmark in read_benchmarks(data, left_out)}
    assert [*benchmarks] == NAMES
    assert left_out == []
    rows = [["love", "sex", "6.77"], ["tiger", "tiger", "10.00"]]
    assert benchmarks["ws353"] == Similarity("ws353", rows)
    questions = [["capital", "Athens", "Greece", "Oslo", "Norway"]]
    questions += [["plural", "cat", "cats", "dog", "dogs"]]
    assert benchmarks["google"] == Analogies("google", questions)
    assert benchmarks["semeval2012_2"].rows[0] == ["5h", "catch", "elusive", "eat", "edible"]
    rows = [["tree", "oak"], ["tree", "elm"], ["bird", "owl"]]
    assert benchmarks["ap"] == Categories("ap", rows)


def test_skips_missing_files(data: Path, tmp_path: Path) -> None:
    (data / "EN-MEN-TR-3k.txt").unlink()
    left_out: list[str] = []
    benchmarks = read_benchmarks(data, left_out)
    assert [benchmark.name for benchmark in benchmarks] == [n for n in NAMES if n != "men"]
    path = data / "EN-MEN-TR-3k.txt"
    assert left_out == [f"men: Cannot read {path}: No such file or directory."]
    with pytest.raises(LatteMixError, match=r"nowhere holds no word benchmark: .* EN-SIMLEX-999"):
        read_benchmarks(tmp_path / "nowhere", [])


@pytest.mark.parametrize(
    ("file", "line", "note"),
    [
        ("EN-SIMLEX-999.txt", "old\tnew", "line 3: expected two words and a score."),
        ("EN-SIMLEX-999.txt", "old\tnew\thigh", "line 3: expected two words and a score."),
        ("EN-SIMLEX-999.txt", "old\tnew\tnan", "line 3: expected two words and a score."),
        ("EN-SIMLEX-999.txt", "old\t\t1", "line 3: expected two words and a score."),
        ("analogy-msr.csv", "2,x,a,b,c", "line 4: expected type, word1, word2, word3, target."),
        ("categorization-ap.csv", "3,bird,", "line 5: expected category, word."),
        ("categorization-ap.csv", "3,,a\n4", "line 5 (and 1 more lines): expected category, word."),
    ],
)
def test_notes_unusable_rows_by_line_number(data: Path, file: str, line: str, note: str) -> None:
    complete = read_benchmarks(data, [])
    (data / file).write_text((data / file).read_text() + line + "\n")
    left_out: list[str] = []
    assert read_benchmarks(data, left_out) == complete
    assert left_out == [f"{data / file}, {note}"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"category,words\na,b\nc,d\n", "line 1: expected columns named category, word."),
        (b"category,word\na,b\n", "has fewer than two usable rows."),
        (b"", "line 1: expected columns named category, word."),
        (b"category,word\na,\xff\n", "is not UTF-8 text"),
    ],
)
def test_skips_unusable_files(data: Path, content: bytes, problem: str) -> None:
    (data / "categorization-ap.csv").write_bytes(content)
    left_out: list[str] = []
    benchmarks = read_benchmarks(data, left_out)
    assert [benchmark.name for benchmark in benchmarks] == [n for n in NAMES if n != "ap"]
    (note,) = left_out
    assert note.startswith("ap: ")
    assert problem in note


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Cosines 0, 0.6, 0.8 against 1, 3, 2: one pair of neighbours is swapped.
        ([["right", "up", "1"], ["Right", "between", "3"], ["up", "between", "2"]], (50, 3, 3)),
        # The mean vector is (1.6, 1.8) / 3: 0.53 with `right`, 0.64 with itself.
        (
            [["right", "up", "1"], ["right", "?", "2"], ["between", "right", "3"], ["?", "!", "4"]],
            (100, 2, 4),
        ),
    ],
)
def test_similarity_score(rows: list[list[str]], expected: tuple[float, int, int]) -> None:
    score = Similarity("x", rows).score(PLANE)
    assert (round(score.value, 6), score.covered, score.total) == expected


def test_similarity_of_unknown_words_is_nan() -> None:
    score = Similarity("x", [["?", "!", "1"], ["!", "?", "2"]]).score(PLANE)
    assert np.isnan(score.value)
    assert score.covered == 0


@pytest.mark.parametrize("at_once", [1, 2**20])
def test_analogy_accuracy(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(word_benchmarks, "_SCORES_AT_ONCE", at_once)
    names = ["man", "woman", "king", "queen", "lad", "cat", "cats", "dog", "dogs"]
    vectors = np.zeros((9, 6), np.float32)
    vectors[:5, :3] = [[0, 1, 0], [0, 0.8, 0.6], [1, 1, 0], [1, 0.8, 0.6], [1, 1.2, -0.9]]
    vectors[5:, 3:] = [[1, 0, 0], [0.8, 0.6, 0], [0, 0, 1], [0.4, 0.3, 0.87]]
    embedding = Embedding.of(names, vectors)
    questions = [
        ["type", "man", "woman", "king", "queen"],
        ["type", "woman", "man", "queen", "king"],
        ["type", "man", "woman", "king", "cat"],
        ["type", "cat", "cats", "dog", "dogs"],  # `dog` is nearer, but part of the question
        ["type", "man", "woman", "boy", "girl"],
        ["type", "man", "woman", "king", "empress"],
    ]
    assert Analogies("x", questions).score(embedding) == WordScore(100 * 3 / 6, 4, 6)
    assert Analogies("x", questions[4:]).score(embedding) == WordScore(0, 0, 2)


def test_relation_ranking() -> None:
    # Along the example's (1, -1), these pairs score 2, 1.2, 0 and -1.2.
    pairs = [["right", "up"], ["right", "between"], ["up", "up"], ["between", "right"]]
    best_first = [["1", "right", "up", *pair] for pair in pairs]
    unknown = [["2", "?", "up", "?", "?"], ["2", "?", "up", "!", "!"]]

    def value(rows: list[list[str]]) -> tuple[float, int, int]:
        score = Relations("x", rows).score(PLANE)
        return round(score.value, 6), score.covered, score.total

    assert value(best_first) == (100, 4, 4)
    assert value(best_first[::-1]) == (-100, 4, 4)
    assert value(best_first + unknown) == (50, 4, 6)


def test_purity() -> None:
    labels, clusters = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 1, 3])
    assert purity(labels, clusters) == pytest.approx((2 + 2 + 1) / 6)
    assert purity(labels, np.zeros(6, int)) == pytest.approx(3 / 6)
    assert purity(labels, np.arange(6)) == 1


def grouped(noise: float) -> tuple[Embedding, Categories]:
    """Three groups of five words around three axes."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 5)
    vectors = np.eye(8)[labels] + noise * rng.normal(size=(15, 8))
    names = [f"word{i}" for i in range(15)]
    rows = [[f"category{label}", name] for label, name in zip(labels, names, strict=True)]
    return Embedding.of(names, vectors.astype(np.float32)), Categories("x", rows)


def test_category_purity() -> None:
    embedding, categories = grouped(0.05)
    assert categories.score(embedding) == WordScore(100, 15, 15)
    moved = Categories("x", [*categories.rows[:-1], ["category0", "word14"]])
    assert moved.score(embedding).value == pytest.approx(100 * 14 / 15)
    score = Categories("x", [*categories.rows[:-1], ["category2", "?"]]).score(embedding)
    assert score.value >= 100 * 14 / 15
    assert (score.covered, score.total) == (14, 15)


def test_category_score_is_the_best_clustering() -> None:
    embedding, categories = grouped(0.5)
    labels = np.repeat(np.arange(3), 5)
    clusterings = word_benchmarks._clusterings(embedding.vectors.astype(np.float64), 3)
    purities = sorted(100 * purity(labels, clusters) for clusters in clusterings)
    assert purities[0] < purities[-1] == categories.score(embedding).value


def test_clusterings_have_the_requested_size_and_are_deterministic() -> None:
    vectors = grouped(1.0)[0].vectors.astype(np.float64)
    first, second = (list(word_benchmarks._clusterings(vectors, 4)) for _ in range(2))
    assert len(first) == 6
    for clusters, again in zip(first, second, strict=True):
        assert len(np.unique(clusters)) == 4
        np.testing.assert_array_equal(clusters, again)


def zero_vectors(embedding: Embedding) -> Embedding:
    return Embedding.of([*embedding.index], np.zeros_like(embedding.vectors))


def other_words(embedding: Embedding) -> Embedding:
    return Embedding.of([f"other{i}" for i in range(15)], embedding.vectors)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("changed", "covered"), [(zero_vectors, 15), (other_words, 0)])
def test_clusters_identical_vectors(
    changed: Callable[[Embedding], Embedding], covered: int
) -> None:
    embedding, categories = grouped(0.05)
    score = categories.score(changed(embedding))
    assert 100 / 3 <= score.value < 100
    assert score.covered == covered
