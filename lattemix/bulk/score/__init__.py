"""`lattemix score`: larger-than-memory files, shard by shard, in this process or on Ray."""

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tqdm import tqdm

from lattemix.bulk.readers import Table, columns_named
from lattemix.bulk.runners import Runner
from lattemix.bulk.score.folder import Folder
from lattemix.bulk.score.plan import Tally, Task, make_shards
from lattemix.bulk.score.worker import Worker
from lattemix.bulk.sources import list_sources
from lattemix.bulk.writers import Origin
from lattemix.similarity import check
from model_store import LatteMixError, Metric, Store
from model_store.calibration import CALIBRATION, calibration_of
from model_store.choice import choose


def score(
    source: Path,
    output: Path,
    columns: Sequence[str],
    keep: Sequence[str],
    metrics: Sequence[Metric] | None,
    parts: str | None,
    shard_rows: int,
    start_runner: Callable[[], Runner],
) -> Tally:
    """Write a directory of results for the rows of a file, or of a directory of files.

    Shards that an interrupted run of the same task has finished are not computed again.

    Args:
        source: file or directory to read.
        output: directory to write; it appears when it is complete.
        columns: two whose texts are compared, or one whose texts are encoded.
        keep: other columns to copy, as text.
        metrics: similarities of two columns; default: the model's recommended metric.
        parts: file type of the results; default: the input's, or Parquet for mixtures.
        shard_rows: rows per shard, the unit of work that an interruption loses.
        start_runner: called after the arguments have been checked.
    """
    comparing = len(columns) == 2
    metrics = [*dict.fromkeys(metrics or ())] if comparing else []
    _check_columns(columns, keep, metrics if comparing else ["embedding"])
    if source.is_dir() and output.absolute().is_relative_to(source.absolute()):
        raise LatteMixError(f"{output} is inside the input {source}: choose another directory.")
    sources = list_sources(source)
    for file in sources:
        Table(Path(file.path), columns_named(columns))  # raises if the file type is not supported
    suffix = Path(sources[0].path).suffix.lower().removeprefix(".")
    folder = Folder(output)
    with folder.locked():
        runner = start_runner()
        settings = runner.settings
        artifact, _ = choose(Store(settings.store), settings.model, runner.device)
        if comparing and not metrics:
            metrics = [artifact.manifest.recommended_metric]
            _check_columns(columns, keep, metrics)
        for metric in metrics:
            check(metric, artifact.centre)
        calibration = calibration_of(artifact)
        calibrated = calibration is not None and calibration.metric in metrics
        if calibration is not None and calibrated:
            _check_columns(columns, keep, [*metrics, calibration.kind])
        task = Task(
            model=artifact.manifest.reference,
            fingerprint=artifact.manifest.fingerprint,
            columns=tuple(columns),
            keep=tuple(keep),
            metrics=tuple(metrics),
            calibration=artifact.manifest.files[CALIBRATION].sha256 if calibrated else None,
            truncate=settings.truncate,
            max_windows=settings.max_windows,
            parts=parts or (suffix if metrics else "parquet"),
            shard_rows=shard_rows,
        )
        plan = folder.begin(task, sources, lambda: make_shards(sources, task))
        unfinished = [shard for shard in plan.shards if folder.tally(shard) is None]
        total = sum(shard.rows for shard in plan.shards)
        done = total - sum(shard.rows for shard in unfinished)
        quiet = not sys.stderr.isatty()
        load = partial(Worker, task, folder, settings)
        with tqdm(total=total, initial=done, unit=" rows", disable=quiet) as bar:
            for tally in runner.run(load, unfinished, Tally):
                bar.update(tally.rows)
        if list_sources(source) != plan.sources:
            raise LatteMixError(f"{source} changed while it was read: start again.")
        return folder.finish(plan)


def _check_columns(columns: Sequence[str], keep: Sequence[str], results: Sequence[str]) -> None:
    if len(columns) not in (1, 2):
        raise LatteMixError(f"--columns {','.join(columns)}: name two to compare, or one to embed.")
    added = (*results, "truncated", "error", *Origin._fields)
    names = [*columns, *keep, *added]
    duplicate = next((name for name in names if names.count(name) > 1), None)
    if duplicate is not None:
        raise LatteMixError(
            f"The results would have two columns {duplicate!r}: --columns and --keep must name "
            f"different columns, and none of {', '.join(added)}."
        )
