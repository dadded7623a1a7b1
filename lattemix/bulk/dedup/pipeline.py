"""From rows to groups of near-duplicates, stage by stage. Finished stages are not repeated."""

import sys
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lattemix.bulk.dedup.cells import NO_CELL
from lattemix.bulk.dedup.compare import CompareWorker, RangeResult, Round
from lattemix.bulk.dedup.groups import Groups, Linkage, resolve
from lattemix.bulk.dedup.options import smallest_first_score
from lattemix.bulk.dedup.pairs import Floats, Ids, Mask, Pairs
from lattemix.bulk.dedup.rows import Rows
from lattemix.bulk.dedup.task import Comparison
from lattemix.bulk.dedup.vectors import (
    Models,
    ShardResult,
    Vectors,
    VectorsWorker,
    shard_result,
    shards,
    write_space,
)
from lattemix.bulk.runners import Runner


class Texts(NamedTuple):
    """The distinct texts of an input, and which of them to keep."""

    order: Ids  # ids, the first to keep first: [T]
    representative: Ids  # the row that is kept for each text: [T]
    references: int  # number of texts, the first ones, of the rows to compare against


def order_texts(
    rows: Rows, references: int, keep: str, numbers: NDArray[np.float64] | None
) -> Texts:
    """Order texts by the keep rule; ties, and all texts to compare against, by their first row.

    Args:
        rows: of all files.
        references: number of rows, the first ones, to compare against.
        keep: "first", "longest", "shortest", or else `numbers` decide.
        numbers: the largest is kept; of the rows after the references.
    """
    if numbers is not None:
        value = np.concatenate([np.full(references, np.inf), numbers])
    else:
        value = {"first": 0, "longest": 1, "shortest": -1}[keep] * rows.lengths
    by_text = np.lexsort((np.arange(len(rows)), -value, rows.text))
    _, starts = np.unique(rows.text[by_text], return_index=True)
    representative = by_text[starts]
    count = int(np.searchsorted(rows.first, references))
    representative[:count] = rows.first[:count]
    inputs = count + np.lexsort((representative[count:], -value[representative[count:]]))
    return Texts(np.concatenate([np.arange(count), inputs]), representative, count)


class Grouping(NamedTuple):
    """The groups of an input, and what could not be compared."""

    pairs: Pairs  # all candidates
    groups: Groups
    comparable: Mask  # texts that have vectors [T]
    shards: list[ShardResult]
    ranges: list[RangeResult]


class Pipeline:
    """The stages after the rows have been read."""

    def __init__(
        self,
        directory: Path,
        rows: Rows,
        runner: Runner,
        comparison: Comparison,
        *,
        quiet: bool = False,
    ) -> None:
        """Prepare.

        Args:
            directory: of intermediate results, with a plan.
            rows: of the directory.
            runner: computes the parts.
            comparison: how texts are compared.
            quiet: show no progress.
        """
        self._directory, self._rows, self._runner = directory, rows, runner
        self._comparison, self._quiet = comparison, quiet
        self._models = Models(directory, runner.settings)
        self._ranges: list[RangeResult] = []

    def run(self, order: Ids, threshold: float, linkage: Linkage) -> Grouping:
        """Group texts.

        Args:
            order: ids of texts, those to keep first.
            threshold: smallest score of duplicates.
            linkage: what the texts of a group have in common.
        """
        texts = len(self._rows.first)
        write_space(self._directory, self._rows, self._models)
        results = self._encode(texts)
        vectors = Vectors(self._directory, texts)
        comparable: Mask = vectors.nearest[:, 0] != NO_CELL

        first = self._comparison
        minimum = threshold if first.rescorer is None else smallest_first_score(threshold)
        minimum = max(minimum, first.floor)  # candidates with a lower score do not matter
        follow_up = first.model_copy(update={"floor": minimum})

        def compare(
            active: Mask, visiting: Mask, comparison: Comparison = follow_up
        ) -> tuple[Pairs, Mask]:
            masks = active & comparable, visiting & comparable
            pairs, cutoffs = self._compare(vectors, comparison, *masks)
            return pairs, cutoffs >= minimum

        everything = np.ones(texts, bool)
        pairs, crowded = compare(everything, everything, first)
        pairs, groups = resolve(pairs, crowded, threshold, order, linkage, compare)
        return Grouping(pairs, groups, comparable, results, self._ranges)

    def _encode(self, texts: int) -> list[ShardResult]:
        planned = shards(texts)
        pending = [shard for shard in planned if shard_result(self._directory, shard) is None]
        load = partial(VectorsWorker, self._directory, self._models)
        done = texts - sum(shard.stop - shard.start for shard in pending)
        with self._progress("Encoding", texts, done) as bar:
            for result in self._runner.run(load, pending, ShardResult):
                bar.update(result.texts)
        results = [shard_result(self._directory, shard) for shard in planned]
        return [result for result in results if result is not None]

    def _compare(
        self, vectors: Vectors, comparison: Comparison, active: Mask, visiting: Mask
    ) -> tuple[Pairs, Floats]:
        this_round = Round.make(self._directory, comparison, active, visiting)
        planned = this_round.ranges(this_round.index(vectors))
        pending = [part for part in planned if this_round.result(part) is None]
        load = partial(CompareWorker, self._directory, comparison, self._models)
        total = sum(part.texts for part in planned)
        done = total - sum(part.texts for part in pending)
        with self._progress("Comparing", total, done) as bar:
            for result in self._runner.run(load, pending, RangeResult):
                bar.update(result.texts)
        results = [this_round.result(part) for part in planned]
        self._ranges += [result for result in results if result is not None]
        return this_round.pairs(planned, len(active))

    def _progress(self, stage: str, total: int, done: int) -> Any:
        return progress_bar(stage, "texts", total, done, quiet=self._quiet)


def progress_bar(
    stage: str, unit: str, total: int | None = None, done: int = 0, *, quiet: bool = False
) -> Any:
    """Return a progress bar, which only a terminal shows."""
    return tqdm(
        desc=stage,
        unit=f" {unit}",
        total=total,
        initial=done,
        disable=quiet or not sys.stderr.isatty(),
        unit_scale=True,
    )
