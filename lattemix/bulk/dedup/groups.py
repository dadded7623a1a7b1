"""Groups of near-duplicates: which texts are kept, and which of them each other one duplicates."""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Literal, NamedTuple

import numpy as np

from lattemix.bulk.dedup.pairs import Floats, Ids, Mask, Pairs, join

# What a text of a group has in common with others: a score above the threshold with the text that
# is kept, or with every text of the group.
Linkage = Literal["keeper", "complete"]

Edge = tuple[int, int, float]  # rank of the later text, rank of the earlier one, score


class Groups(NamedTuple):
    """For each text, the kept text it duplicates, itself if it is kept, and their score: [N]."""

    keeper: Ids
    scores: Floats  # NaN for kept texts

    @property
    def kept(self) -> Mask:
        """Which texts are kept."""
        kept: Mask = self.keeper == np.arange(len(self.keeper))
        return kept


def group(pairs: Pairs, order: Ids, linkage: Linkage) -> Groups:
    """Go through texts in order; drop each that duplicates an earlier one that is kept.

    No chain: a dropped text duplicates the kept one itself. Of several it is the most similar one.

    Args:
        pairs: those that reach the threshold.
        order: ids of all texts, the ones to keep first.
        linkage: `complete` drops a text only if it reaches the threshold with the whole group.
    """
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    first, second = rank[pairs.left], rank[pairs.right]
    later, earlier = np.maximum(first, second), np.minimum(first, second)
    sequence = np.lexsort((earlier, -pairs.scores, later))
    columns = (later[sequence], earlier[sequence], pairs.scores[sequence])
    edges: Iterator[Edge] = zip(*(column.tolist() for column in columns), strict=True)
    drop = _with_keeper if linkage == "keeper" else _with_all
    keeper, scores = np.arange(len(order)), np.full(len(order), np.nan, np.float32)
    for text, kept, score in drop(edges):
        keeper[order[text]], scores[order[text]] = order[kept], score
    return Groups(keeper, scores)


def _with_keeper(edges: Iterator[Edge]) -> Iterator[Edge]:
    """Yield each dropped text with its keeper. All edges of an earlier text come first."""
    dropped: set[int] = set()
    for edge in edges:
        later, earlier, _ = edge
        if later not in dropped and earlier not in dropped:
            dropped.add(later)
            yield edge


def _with_all(edges: Iterator[Edge]) -> Iterator[Edge]:
    keepers: dict[int, int] = {}
    sizes: Counter[int] = Counter()  # dropped texts by keeper
    for later, links in groupby(edges, itemgetter(0)):
        nearby = {earlier: score for _, earlier, score in links}  # the most similar first
        linked = Counter(keepers.get(earlier, earlier) for earlier in nearby)
        for earlier, score in nearby.items():
            if earlier not in keepers and linked[earlier] == sizes[earlier] + 1:
                keepers[later] = earlier
                sizes[earlier] += 1
                yield later, earlier, score
                break


Compare = Callable[[Mask, Mask], tuple[Pairs, Mask]]


def resolve(
    pairs: Pairs, crowded: Mask, threshold: float, order: Ids, linkage: Linkage, compare: Compare
) -> tuple[Pairs, Groups]:
    """Group texts until no two kept ones are known to be duplicates; return all pairs too.

    Args:
        pairs: candidates.
        crowded: texts with more matches than `pairs` holds [N].
        threshold: smallest score of duplicates.
        order: ids of all texts, the ones to keep first.
        linkage: what the texts of a group have in common.
        compare: given the kept texts and the crowded ones among them, compares them and returns
            their pairs, and which texts still have more.
    """
    crowded_at_first, compared = crowded, np.ones(len(order), bool)
    while True:
        close = pairs.where(pairs.scores >= threshold)
        groups = group(close, order, linkage)
        if (groups.kept & ~compared).any():  # kept again: the last round left these texts out
            crowded = crowded_at_first
        dropped = compared & ~groups.kept
        waiting = crowded & groups.kept & _linked(pairs, dropped)  # others would match the same
        if not waiting.any():
            return pairs, groups
        compared = groups.kept
        new_pairs, still_crowded = compare(compared, waiting)
        crowded = np.where(waiting, still_crowded, crowded)
        pairs = join([pairs, new_pairs])
        if np.count_nonzero(pairs.scores >= threshold) == len(close):
            return pairs, groups


def _linked(pairs: Pairs, chosen: Mask) -> Mask:
    """Mark the texts that have a pair with a chosen one [N]."""
    linked = np.zeros_like(chosen)
    linked[pairs.left[chosen[pairs.right]]] = True
    linked[pairs.right[chosen[pairs.left]]] = True
    return linked
