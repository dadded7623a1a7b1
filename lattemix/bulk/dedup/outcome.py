"""From rows to what becomes of each: kept, or dropped for another."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lattemix.bulk.dedup.options import Options, Resolved
from lattemix.bulk.dedup.pairs import Floats, Ids, Mask
from lattemix.bulk.dedup.pipeline import Grouping, Pipeline, Texts, order_texts
from lattemix.bulk.dedup.rows import Rows
from lattemix.bulk.dedup.task import Comparison
from lattemix.bulk.runners import Runner


class DecidedRows(NamedTuple):
    """What becomes of every row."""

    keeper: Ids  # the row that is kept instead of it; itself if it is kept [R]
    scores: Floats  # NaN for kept rows [R]

    @property
    def kept(self) -> Mask:
        """Which rows are kept."""
        kept: Mask = self.keeper == np.arange(len(self.keeper))
        return kept


def decide_rows(
    rows: Rows, texts: Texts, grouping: Grouping, comparison: Comparison, first_input: int
) -> DecidedRows:
    """Return what becomes of rows, given what becomes of their texts.

    All rows whose text the model rejects are kept: a text without words says nothing of the row.

    Args:
        rows: of all files.
        texts: which row is kept of each text.
        grouping: of the texts.
        comparison: with `against_only`, equal rows of the input are kept.
        first_input: number of rows to compare against; all of them count as kept.
    """
    groups, own = grouping.groups, np.arange(len(rows))
    keeper = texts.representative[groups.keeper[rows.text]]
    scores = groups.scores[rows.text]
    scores[np.isnan(scores)] = 1  # the text itself is kept, in another row
    kept = (keeper == own) | ~grouping.comparable[rows.text] | (own < first_input)
    if comparison.against_only:
        kept |= keeper >= first_input
    return DecidedRows(np.where(kept, own, keeper), np.where(kept, np.float32(np.nan), scores))


class Outcome(NamedTuple):
    """The result of a run."""

    rows: Rows
    grouping: Grouping
    decided: DecidedRows


def find_duplicates(
    work: Path,
    runner: Runner,
    options: Options,
    resolved: Resolved,
    first_input: int,
    numbers: NDArray[np.float64] | None,
    *,
    quiet: bool = False,
) -> Outcome:
    """Find the duplicates among the rows of a work directory, which has a plan.

    Args:
        work: directory of intermediate results.
        runner: computes them.
        options: how to find duplicates, and which of them to keep.
        resolved: what follows from the options.
        first_input: number of rows to compare against.
        numbers: of the other rows, if these decide which of them to keep.
        quiet: show no progress.
    """
    rows = Rows.load(work)
    texts = order_texts(rows, first_input, options.keep, numbers)
    comparison = resolved.comparison.model_copy(update={"references": texts.references})
    pipeline = Pipeline(work, rows, runner, comparison, quiet=quiet)
    grouping = pipeline.run(texts.order, resolved.threshold, options.linkage)
    decided = decide_rows(rows, texts, grouping, comparison, first_input)
    return Outcome(rows, grouping, decided)
