"""De-duplicate a list of texts: `lattemix.dedup`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray

from lattemix.arguments import TruncateOption, as_texts, as_truncate
from lattemix.bulk.dedup.groups import Linkage
from lattemix.bulk.dedup.options import Keep, Options, check_choice, resolve_options
from lattemix.bulk.dedup.outcome import Outcome, find_duplicates
from lattemix.bulk.dedup.rows import open_rows
from lattemix.bulk.dedup.task import Plan
from lattemix.bulk.folder import PLAN, write_text
from lattemix.bulk.runners import LocalRunner
from lattemix.calibrated import ThresholdOn
from lattemix.settings import ModelSettings, read_settings
from model_store import LatteMixError, Metric


@dataclass(frozen=True)
class Duplicate:
    """A text that was dropped."""

    index: int
    kept: int  # index of the text that is kept instead
    score: float
    in_against: bool  # that text is one of `against`


@dataclass(frozen=True)
class Deduplication:
    """A list without its near-duplicates."""

    texts: list[str]  # kept
    kept: list[int]  # their indices
    duplicates: list[Duplicate]  # dropped
    not_compared: list[int]  # kept: the model rejects these texts


def dedup(
    texts: Iterable[str],
    *,
    threshold: float | None = None,
    threshold_on: ThresholdOn = "score",
    keep: Keep | Sequence[float] = "first",
    linkage: Linkage = "keeper",
    against: Iterable[str] = (),
    against_only: bool = False,
    model: str = "fast",
    rescore: str | None = None,
    metric: Metric | None = None,
    floor: float | None = None,
    truncate: TruncateOption = None,
    store: str | Path | None = None,
) -> Deduplication:
    """Drop near-duplicates from a list.

    Example:
        ```python
        >>> import lattemix
        >>> lattemix.dedup(["It rains.", "It rains!", "The sun is out."]).texts
        ['It rains.', 'The sun is out.']

        ```

    Args:
        texts: the list.
        threshold: smallest score of near-duplicates; default: the model's.
        threshold_on: what the threshold is a value of: "score", "probability" or "rating".
        keep: which of several near-duplicates to keep: "first", "longest" or "shortest"; or a
            number for each text, of which the largest is kept.
        linkage: "keeper" drops a text that is similar to the kept one; "complete" requires that it
            is similar to all texts dropped with it.
        against: other texts; what is similar to these is dropped.
        against_only: drop nothing else.
        model: finds pairs.
        rescore: second model: the mean of both models' scores decides.
        metric: similarity metric; default: the recommended one.
        floor: smallest score of a pair by the model that finds pairs.
        truncate: how to handle long texts; default: `LATTEMIX_TRUNCATE`.
        store: directory of the assembled models; else `LATTEMIX_STORE`.

    Raises:
        LatteMixError: an option is invalid, or there is no such model.
    """
    items, references = as_texts(texts), as_texts(against)
    numbers = None if isinstance(keep, str) else _as_numbers(keep, len(items))
    rule = "numbers"
    if isinstance(keep, str):
        rule = check_choice("keep", keep, Keep)
    check_choice("linkage", linkage, Linkage)
    settings = read_settings(ModelSettings, model=model, store=store)
    settings = settings.model_copy(update={"truncate": as_truncate(truncate, settings.truncate)})
    options = Options(
        model, rescore, metric, threshold, threshold_on, floor, against_only, rule, linkage
    )
    if not items:
        return Deduplication([], [], [], [])
    runner = LocalRunner(settings)
    resolved = resolve_options(options, settings, runner.device)
    with TemporaryDirectory(prefix="lattemix-") as name:
        work = Path(name)
        plan = Plan(task=resolved.task, against=(), sources=())
        write_text(work / PLAN, plan.model_dump_json())
        with open_rows(work) as writer:
            for text in references + items:
                writer.add(text)
        start = len(references)
        outcome = find_duplicates(work, runner, options, resolved, start, numbers, quiet=True)
    return _deduplication(items, outcome, start)


def _as_numbers(keep: Sequence[float], count: int) -> NDArray[np.float64]:
    numbers = np.asarray(keep, np.float64)
    if numbers.shape != (count,):
        raise LatteMixError(f"keep has {numbers.size:,} numbers, for {count:,} texts.")
    if np.isnan(numbers).any():
        raise LatteMixError(f"keep[{np.isnan(numbers).argmax()}] is NaN.")
    return numbers


def _deduplication(texts: list[str], outcome: Outcome, start: int) -> Deduplication:
    """Return the result for the rows from `start` on."""
    decided, compared = outcome.decided, outcome.grouping.comparable[outcome.rows.text]
    kept = np.nonzero(decided.kept[start:])[0].tolist()
    duplicates = []
    for row in (np.nonzero(~decided.kept)[0]).tolist():
        keeper, score = int(decided.keeper[row]), float(decided.scores[row])
        in_against = keeper < start
        index = keeper if in_against else keeper - start
        duplicates.append(Duplicate(row - start, index, score, in_against))
    return Deduplication(
        texts=[texts[index] for index in kept],
        kept=kept,
        duplicates=duplicates,
        not_compared=np.nonzero(~compared[start:])[0].tolist(),
    )
