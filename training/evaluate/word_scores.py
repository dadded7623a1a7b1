"""Word benchmarks: how much of what people know of words is in an embedding.

Measured as the package word-embeddings-benchmarks does, which the paper uses.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import cut_tree, linkage
from scipy.cluster.vq import kmeans2, vq
from scipy.spatial.distance import pdist

from training.evaluate.statistics import spearman
from training.evaluate.word_sets import (
    Analogies,
    Categories,
    Pair,
    Relation,
    Relations,
    Similarity,
    WordBenchmark,
)
from training.evaluate.words import Embedding, Floats, Rows

_SCORES_AT_ONCE = 2**26  # of answers to analogies: 256 MB
_KMEANS_SEEDS = range(10)


@dataclass(frozen=True)
class WordScore:
    """A benchmark's result, x100, and how many of its items have no word missing."""

    value: float
    covered: int
    total: int


def evaluate_words(
    embedding: Embedding, benchmarks: Sequence[WordBenchmark]
) -> dict[str, WordScore]:
    """Measure an embedding by each benchmark."""
    return {benchmark.name: _score(embedding, benchmark) for benchmark in benchmarks}


def _score(embedding: Embedding, benchmark: WordBenchmark) -> WordScore:
    match benchmark:
        case Similarity():
            return _similarity(embedding, benchmark)
        case Analogies():
            return _analogies(embedding, benchmark)
        case Relations():
            return _relations(embedding, benchmark)
        case Categories():
            return _categories(embedding, benchmark)


def _look_up_pairs(
    embedding: Embedding, pairs: Sequence[Pair]
) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Vectors of the left words and the right ones [N, H], and which pairs have both [N]."""
    (left, knows_left), (right, knows_right) = (
        embedding.look_up(words) for words in zip(*pairs, strict=True)
    )
    return left, right, knows_left & knows_right


def _similarity(embedding: Embedding, benchmark: Similarity) -> WordScore:
    """Spearman's correlation of cosines with people's scores."""
    left, right, known = _look_up_pairs(embedding, benchmark.pairs)
    cosines = (left * right).sum(axis=1, dtype=np.float64)
    value = spearman(cosines, np.array(benchmark.gold))
    return WordScore(value, int(known.sum()), len(known))


def _analogies(embedding: Embedding, benchmark: Analogies) -> WordScore:
    """Accuracy of 3CosAdd over the whole vocabulary; a question with a missing word is failed."""
    vectors = embedding.vectors
    rows = embedding.find([word for question in benchmark.questions for word in question])
    rows = rows.reshape(-1, 4)
    known = rows[(rows >= 0).all(axis=1)]
    size, right = max(1, _SCORES_AT_ONCE // len(vectors)), 0
    for start in range(0, len(known), size):
        batch = known[start : start + size]
        a, b, c, answers = batch.T
        scores = (vectors[b] - vectors[a] + vectors[c]) @ vectors.T  # [B, V]
        np.put_along_axis(scores, batch[:, :3], -np.inf, axis=1)  # no word answers itself
        right += int((scores.argmax(axis=1) == answers).sum())
    return WordScore(100 * right / len(rows), len(known), len(rows))


def _relations(embedding: Embedding, benchmark: Relations) -> WordScore:
    """Spearman's correlation with people's ranking, averaged over the relations."""

    def correlation(relation: Relation) -> tuple[float, NDArray[np.bool_]]:
        left, right, _ = _look_up_pairs(embedding, relation.examples)
        direction = (left - right).mean(axis=0)  # [H]
        left, right, known = _look_up_pairs(embedding, relation.ranked)
        scores = ((left - right) @ direction).astype(np.float64)  # [N]
        found = spearman(scores, -np.arange(len(known), dtype=np.float64))
        return 0.0 if math.isnan(found) else found, known  # all words missing: nothing is ranked

    found, known = zip(*map(correlation, benchmark.relations), strict=True)
    covered = np.concatenate(known)
    return WordScore(float(np.mean(found)), int(covered.sum()), len(covered))


def _categories(embedding: Embedding, benchmark: Categories) -> WordScore:
    """Purity of the best of some clusterings into as many clusters as there are categories."""
    vectors, known = embedding.look_up(benchmark.words)
    names, labels = np.unique(benchmark.categories, return_inverse=True)
    purities = [
        purity(labels, clusters)
        for clusters in _clusterings(vectors.astype(np.float64), len(names))
    ]
    return WordScore(100 * max(purities), int(known.sum()), len(known))


def purity(labels: Rows, clusters: Rows) -> float:
    """The share of items [N] that bear the commonest label of their cluster."""
    counts = np.zeros((clusters.max() + 1, labels.max() + 1), np.intp)
    np.add.at(counts, (clusters, labels), 1)
    return float(counts.max(axis=1).sum() / len(labels))


def _clusterings(vectors: NDArray[np.float64], count: int) -> Iterator[Rows]:
    """Ways to put vectors [N, H] into so many clusters: the number of its cluster for each."""
    yield cut_tree(linkage(vectors, "ward"), count)[:, 0]
    for metric in ("cosine", "euclidean"):
        distances = np.nan_to_num(pdist(vectors, metric), nan=1.0)  # zeros have no cosine
        for method in ("average", "complete"):
            yield cut_tree(linkage(distances, method), count)[:, 0]
    if len(np.unique(vectors, axis=0)) >= count:  # else there are not even means to begin with
        yield _kmeans(vectors, count)


def _kmeans(vectors: NDArray[np.float64], count: int) -> Rows:
    """The tightest of some runs."""
    runs = []
    for seed in _KMEANS_SEEDS:
        means, _ = kmeans2(vectors, count, iter=100, minit="++", seed=seed)
        clusters, distances = vq(vectors, means)
        runs.append((float((distances**2).sum()), seed, clusters))
    return min(runs, key=lambda run: run[:2])[2]
