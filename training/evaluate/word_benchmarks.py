"""Word benchmarks: similarity, analogies, relations and categories.

Computed as in the package word-embeddings-benchmarks, which the paper uses.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.cluster.vq import kmeans2, vq
from scipy.spatial.distance import pdist

from model_store import LatteMixError
from training.evaluate.sets import read_text
from training.evaluate.statistics import spearman

Floats = NDArray[np.float32]
Rows = NDArray[np.intp]
Pair = tuple[str, str]

_SCORES_AT_ONCE = 2**26  # of answers to analogies: 256 MB
_KMEANS_SEEDS = range(10)


@dataclass(frozen=True)
class Embedding:
    """One unit vector per word."""

    index: dict[str, int]  # word -> row
    vectors: Floats  # [V, H]

    @classmethod
    def of(cls, words: Sequence[str], vectors: Floats) -> "Embedding":
        """Normalise the vectors [V, H] of distinct words."""
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        index = {word: row for row, word in enumerate(words)}
        return cls(index, vectors / np.maximum(norms, 1e-12))

    @cached_property
    def mean(self) -> Floats:
        """Mean vector [H], used for missing words."""
        mean: Floats = self.vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
        return mean

    def find(self, words: Sequence[str]) -> Rows:
        """The row of each word, as written or in lower case; -1 if it is missing."""
        rows = (self.index.get(word, self.index.get(word.lower(), -1)) for word in words)
        return np.fromiter(rows, np.intp, len(words))

    def look_up(self, words: Sequence[str]) -> tuple[Floats, NDArray[np.bool_]]:
        """The vectors of words [N, H], and which words are known [N]."""
        rows = self.find(words)
        known = rows >= 0
        return np.where(known[:, None], self.vectors[rows], self.mean), known

    def look_up_pairs(self, pairs: Sequence[Pair]) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """The vectors of left and right words [N, H], and which pairs are known [N]."""
        left, right = (self.look_up(words) for words in zip(*pairs, strict=True))
        return left[0], right[0], left[1] & right[1]


@dataclass(frozen=True)
class WordScore:
    """The result of a benchmark, x100, and how many of its items have known words only."""

    value: float
    covered: int
    total: int


@dataclass(frozen=True)
class WordBenchmark(ABC):
    """A benchmark and its rows; subclasses say what the cells of a row are."""

    name: str
    rows: list[list[str]]

    @abstractmethod
    def score(self, embedding: Embedding) -> WordScore:
        """Evaluate an embedding."""


class Similarity(WordBenchmark):
    """Two words and their human similarity score."""

    def score(self, embedding: Embedding) -> WordScore:
        """Spearman's correlation of cosines and human scores."""
        left, right, known = embedding.look_up_pairs([(a, b) for a, b, _ in self.rows])
        cosines = (left * right).sum(axis=1, dtype=np.float64)
        value = spearman(cosines, np.array([float(score) for _, _, score in self.rows]))
        return WordScore(value, int(known.sum()), len(known))


class Analogies(WordBenchmark):
    """Type and four words: the first is to the second as the third is to the answer."""

    def score(self, embedding: Embedding) -> WordScore:
        """Accuracy of 3CosAdd over the vocabulary; a missing word makes a question wrong."""
        vectors = embedding.vectors
        rows = embedding.find([word for row in self.rows for word in row[1:]]).reshape(-1, 4)
        known = rows[(rows >= 0).all(axis=1)]
        size, correct = max(1, _SCORES_AT_ONCE // len(vectors)), 0
        for start in range(0, len(known), size):
            batch = known[start : start + size]
            a, b, c, answers = batch.T
            scores = (vectors[b] - vectors[a] + vectors[c]) @ vectors.T  # [B, V]
            # The words of the question are not candidates.
            np.put_along_axis(scores, batch[:, :3], -np.inf, axis=1)
            correct += int((scores.argmax(axis=1) == answers).sum())
        return WordScore(100 * correct / len(rows), len(known), len(rows))


class Relations(WordBenchmark):
    """Relation, example pair, ranked pair: every ranked pair with every example of its relation.

    Rows are in the order of the gold ratings, best first; the ratings are not in the file.
    """

    def score(self, embedding: Embedding) -> WordScore:
        """Spearman's correlation with the human ranking, averaged over the relations."""
        relations: dict[str, tuple[dict[Pair, None], dict[Pair, None]]] = {}  # as ordered sets
        for relation, a, b, c, d in self.rows:
            examples, ranked = relations.setdefault(relation, ({}, {}))
            examples[a, b] = ranked[c, d] = None
        values, covered, total = [], 0, 0
        for examples, ranked in relations.values():
            left, right, _ = embedding.look_up_pairs([*examples])
            direction = (left - right).mean(axis=0)  # [H]
            left, right, known = embedding.look_up_pairs([*ranked])
            scores = ((left - right) @ direction).astype(np.float64)  # [N]
            value = spearman(scores, -np.arange(len(known), dtype=np.float64))
            values.append(0.0 if math.isnan(value) else value)  # NaN: all words are missing
            covered, total = covered + int(known.sum()), total + len(known)
        return WordScore(float(np.mean(values)), covered, total)


class Categories(WordBenchmark):
    """Category and word."""

    def score(self, embedding: Embedding) -> WordScore:
        """Purity of the best clustering with as many clusters as categories."""
        categories, words = zip(*self.rows, strict=True)
        vectors, known = embedding.look_up(words)
        names, labels = np.unique(categories, return_inverse=True)
        clusterings = _clusterings(vectors.astype(np.float64), len(names))
        best = max(purity(labels, clusters) for clusters in clusterings)
        return WordScore(100 * best, int(known.sum()), len(known))


def purity(labels: Rows, clusters: Rows) -> float:
    """The share of items [N] that have the most common label of their cluster."""
    counts = np.zeros((clusters.max() + 1, labels.max() + 1), np.intp)
    np.add.at(counts, (clusters, labels), 1)
    return float(counts.max(axis=1).sum() / len(labels))


def _clusterings(vectors: NDArray[np.float64], count: int) -> Iterator[Rows]:
    """Yield assignments [N] of vectors [N, H] to clusters by several algorithms."""
    yield cut_tree(linkage(vectors, "ward"), count)[:, 0]
    for metric in ("cosine", "euclidean"):
        distances = np.nan_to_num(pdist(vectors, metric), nan=1.0)  # NaN: zero vectors
        for method in ("average", "complete"):
            yield cut_tree(linkage(distances, method), count)[:, 0]
    if len(np.unique(vectors, axis=0)) < count:
        return  # k-means needs as many distinct vectors as clusters
    runs = []
    for seed in _KMEANS_SEEDS:
        means, _ = kmeans2(vectors, count, iter=100, minit="++", seed=seed)
        clusters, errors = vq(vectors, means)
        runs.append((float((errors**2).sum()), seed, clusters))
    yield min(runs, key=lambda run: run[:2])[2]


_ANALOGY = ("type", "word1", "word2", "word3", "target")
_CATEGORY = ("category", "word")

# Name -> file, kind and columns of a CSV with header. Without columns: tab-separated, no
# header, two words and a score.
_FILES: dict[str, tuple[str, type[WordBenchmark], tuple[str, ...]]] = {
    "simlex999": ("EN-SIMLEX-999.txt", Similarity, ()),
    "men": ("EN-MEN-TR-3k.txt", Similarity, ()),
    "ws353": ("EN-WS-353-ALL.txt", Similarity, ()),
    "rw": ("EN-RW-STANFORD.txt", Similarity, ()),
    "google": ("analogy-google-analogies.csv", Analogies, _ANALOGY),
    "msr": ("analogy-msr.csv", Analogies, _ANALOGY),
    "semeval2012_2": ("analogy-semeval.csv", Relations, _ANALOGY),
    "ap": ("categorization-ap.csv", Categories, _CATEGORY),
    "bless": ("categorization-bless.csv", Categories, _CATEGORY),
}


def read_benchmarks(directory: Path, left_out: list[str]) -> list[WordBenchmark]:
    """Read the word benchmarks in a folder; notes on unusable files and rows go to `left_out`."""
    benchmarks: list[WordBenchmark] = []
    for name, (file, kind, columns) in _FILES.items():
        try:
            benchmarks.append(kind(name, _read_cells(directory / file, columns, left_out)))
        except LatteMixError as error:
            left_out.append(f"{name}: {error}")
    if not benchmarks:
        files = ", ".join(file for file, _, _ in _FILES.values())
        raise LatteMixError(f"{directory} holds no word benchmark: expected some of {files}.")
    return benchmarks


def _read_cells(path: Path, columns: Sequence[str], left_out: list[str]) -> list[list[str]]:
    """The cells of the named columns, or of all three, of every valid row."""
    separator, lines = "," if columns else "\t", read_text(path).rstrip("\n").split("\n")
    indices, width, first = [0, 1, 2], 3, 1
    if columns:
        header, first = [cell.strip() for cell in lines.pop(0).split(separator)], 2
        if not {*columns} <= {*header}:
            raise LatteMixError(f"{path}, line 1: expected columns named {', '.join(columns)}.")
        indices, width = [header.index(column) for column in columns], len(header)
    rows, invalid = [], []
    for number, line in enumerate(lines, start=first):
        cells = [cell.strip() for cell in line.split(separator)]
        row = [cells[index] for index in indices] if len(cells) == width else [""]
        if all(row) and (columns or _is_number(row[2])):
            rows.append(row)
        else:
            invalid.append(number)
    if invalid:
        expected = ", ".join(columns) or "two words and a score"
        more = f" (and {len(invalid) - 1:,} more lines)" if invalid[1:] else ""
        left_out.append(f"{path}, line {invalid[0]:,}{more}: expected {expected}.")
    if len(rows) < 2:  # too few to rank or cluster
        raise LatteMixError(f"{path} has fewer than two usable rows.")
    return rows


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
