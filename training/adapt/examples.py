"""Labelled pairs and triplets as indices of sentences, and their folds for cross-validation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.stats import rankdata

from lattemix.labelled.pairs import LabelError, LabelledPairs
from lattemix.labelled.triplets import Triplets
from training.evaluate.statistics import Scores, spearman

Index = NDArray[np.intp]
Quality = Literal["Spearman", "AUC", "accuracy"]

MAX_EXAMPLES = 20_000  # token vectors of 40,000 short sentences take about 0.5 GB

_MIN_PAIRS = 3  # of a set to report on
_LARGEST_SHARE = 1.5  # of a fold's size, that a group of linked sentences may have


@dataclass(frozen=True)
class Examples:
    """Comparisons of sentences with the answer that a head should give.

    The rows of a pair are `[left, right]`, those of a triplet `[anchor, positive, negative]`.
    """

    sentences: Sequence[str]  # distinct, sorted
    rows: Index  # [N, 2] or [N, 3], indices into `sentences`
    targets: NDArray[np.float64]  # [N], 0 to 1; all 1 for triplets

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def has_triplets(self) -> bool:
        """Whether the examples are triplets."""
        return self.rows.shape[1] == 3

    @cached_property
    def quality_name(self) -> Quality:
        """The figure that `quality` returns."""
        if self.has_triplets:
            return "accuracy"
        return "AUC" if np.isin(self.targets, (0, 1)).all() else "Spearman"

    def take(self, indices: Index) -> "Examples":
        """Return the examples at some indices, with the sentences they use."""
        used, rows = np.unique(self.rows[indices], return_inverse=True)
        texts = [self.sentences[i] for i in used]
        return Examples(texts, rows.reshape(-1, self.rows.shape[1]), self.targets[indices])

    def margins(self, similarity: Scores) -> Scores:
        """Scores of the examples from the similarities of `pairs`: [N] or [2N] -> [N]."""
        if not self.has_triplets:
            return similarity
        positive, negative = np.split(similarity, 2)
        return positive - negative

    @property
    def pairs(self) -> tuple[Index, Index]:
        """The sentences to compare: [N] each; for triplets [2N], positives, then negatives."""
        if not self.has_triplets:
            return self.rows[:, 0], self.rows[:, 1]
        anchors, others = np.tile(self.rows[:, 0], 2), self.rows[:, 1:].T.ravel()
        return anchors, others


def quality(name: Quality, margins: Scores, targets: Scores) -> float:
    """Spearman, AUC or accuracy, x100; NaN if it is not defined."""
    if name == "accuracy":
        return float(100 * np.mean((margins > 0) + 0.5 * (margins == 0)))
    if name == "Spearman":
        return spearman(margins, targets)
    positives = targets > 0
    count, total = int(positives.sum()), len(targets)
    if count in (0, total):
        return float("nan")
    ranks = rankdata(margins)[positives].sum() - count * (count + 1) / 2
    return float(100 * ranks / (count * (total - count)))


def from_pairs(pairs: LabelledPairs) -> Examples:
    """Return labelled pairs as examples."""
    return _indexed([pairs.a, pairs.b], pairs.targets)


def from_triplets(triplets: Triplets) -> Examples:
    """Return triplets as examples."""
    columns = [triplets.anchors, triplets.positives, triplets.negatives]
    return _indexed(columns, np.ones(len(triplets)))


def _indexed(columns: Sequence[Sequence[str]], targets: NDArray[np.float64]) -> Examples:
    sentences = sorted({text for column in columns for text in column})
    order = {text: index for index, text in enumerate(sentences)}
    rows = np.array([[order[text] for text in column] for column in columns]).T
    return Examples(sentences, rows, targets)


def without(
    sets: Sequence[LabelledPairs], sentences: set[str]
) -> tuple[dict[str, Examples], list[str]]:
    """Sets by name, without the pairs that have one of these sentences, and notes on those.

    The targets are the labels as they are.
    """
    kept: dict[str, Examples] = {}
    notes = []
    for pairs in sets:
        shared = np.array([not sentences.isdisjoint(p) for p in zip(pairs.a, pairs.b, strict=True)])
        if shared.any():
            notes.append(f"{pairs.name}: {shared.sum():,} pairs share a sentence with the labels.")
        rest = pairs.take(np.flatnonzero(~shared))
        if len(rest) < _MIN_PAIRS or len(np.unique(rest.labels)) == 1:
            raise LabelError(
                f"{pairs.name} has {len(rest)} pairs that share no sentence with the labels: at "
                f"least {_MIN_PAIRS} with different labels are needed."
            )
        kept[pairs.name] = _indexed([rest.a, rest.b], rest.labels)
    return kept, notes


def sample(examples: Examples, limit: int, seed: int) -> Examples:
    """Return at most `limit` examples, chosen at random."""
    if len(examples) <= limit:
        return examples
    return examples.take(np.sort(np.random.default_rng(seed).permutation(len(examples))[:limit]))


def folds(examples: Examples, count: int, seed: int) -> Iterator[tuple[Index, Index]]:
    """Yield indices for training and for validation, which share no sentence.

    Examples linked by a sentence stay in one fold. If that would make a fold too large, folds are
    random, and training leaves out the examples that share a sentence with the validation.
    """
    fold_of = _fold_of(examples, count, np.random.default_rng(seed))
    for fold in range(count):
        held_out = fold_of == fold
        seen = np.zeros(len(examples.sentences), bool)
        seen[examples.rows[held_out]] = True
        train = ~held_out & ~seen[examples.rows].any(axis=1)
        if train.any() and held_out.any():
            yield np.flatnonzero(train), np.flatnonzero(held_out)


def _fold_of(examples: Examples, count: int, rng: np.random.Generator) -> Index:
    """The fold of each example: [N]."""
    total, size = len(examples), len(examples.sentences)
    links = [(examples.rows[:, 0], other) for other in examples.rows[:, 1:].T]
    first, second = (np.concatenate(side) for side in zip(*links, strict=True))
    graph = coo_array((np.ones(len(first)), (first, second)), shape=(size, size))
    _, component_of = connected_components(graph, directed=False)
    group_of = component_of[examples.rows[:, 0]]  # [N]
    groups, sizes = np.unique(group_of, return_counts=True)
    if len(groups) < count or sizes.max() > _LARGEST_SHARE * total / count:
        return rng.permutation(total) % count
    fold_of_group = np.zeros(group_of.max() + 1, np.intp)
    filled = np.zeros(count)
    # Largest groups first, each into the emptiest fold; a random order among equal sizes.
    shuffled = rng.permutation(len(groups))
    for group in shuffled[np.argsort(-sizes[shuffled], kind="stable")]:
        fold = int(filled.argmin())
        fold_of_group[groups[group]] = fold
        filled[fold] += sizes[group]
    assigned: Index = fold_of_group[group_of]
    return assigned
