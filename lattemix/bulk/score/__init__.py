"""`lattemix score`: files that fit no memory, shard by shard, here or on a Ray cluster."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from tqdm import tqdm

from lattemix.bulk.readers import Table, columns_named
from lattemix.bulk.score.folder import Folder
from lattemix.bulk.score.plan import Tally, Task, cut, digest, sources
from lattemix.bulk.score.runners import Engine, Local, OnRay
from lattemix.similarity import check
from model_store import LatteMixError, Metric, Store
from model_store.choice import choose

__all__ = ["Local", "OnRay", "score"]


def score(
    source: Path,
    output: Path,
    columns: Sequence[str],
    keep: Sequence[str],
    metrics: Sequence[Metric],
    parts: str | None,
    shard_rows: int,
    start: Callable[[], Engine],
) -> Tally:
    """Write a directory of results for the rows of a file, or of a directory of files.

    What an earlier run of the same has finished is not done again.

    Args:
        source: what to read.
        output: where to write; it appears when it is complete.
        columns: two whose texts are compared, or one whose texts are embedded.
        keep: others to carry over, as text.
        metrics: of comparisons.
        parts: the kind of file to write; else that of the input, or Parquet for mixtures.
        shard_rows: rows in a shard, which is what is lost at most when a worker is.
        start: whoever does it, asked for when all else is known to be in order.
    """
    metrics = [*dict.fromkeys(metrics)] if len(columns) == 2 else []
    _check_columns(columns, keep, metrics)
    if source.is_dir() and output.absolute().is_relative_to(source.absolute()):
        raise LatteMixError(f"{output} is in {source}, which is read: choose another place.")
    found = sources(source)
    for file in found:
        Table(Path(file.path), columns_named(columns))  # a kind that is not read is named at once
    kind = Path(found[0].path).suffix.lower().removeprefix(".") if metrics else "parquet"
    folder = Folder(output)
    with folder.held():
        engine = start()
        settings = engine.settings
        artifact, _ = choose(Store(settings.store), settings.model, engine.device)
        for metric in metrics:
            check(metric, artifact.centre)
        task = Task(
            columns=tuple(columns),
            keep=tuple(keep),
            metrics=tuple(metrics),
            parts=parts or kind,
            shard_rows=shard_rows,
            model=artifact.manifest.reference,
            model_digest=digest(artifact.manifest),
        )
        plan = folder.begin(task, found, lambda: cut(found, task))
        todo = [shard for shard in plan.shards if folder.done(shard) is None]
        rows, left = (sum(shard.rows for shard in some) for some in (plan.shards, todo))
        quiet = not sys.stderr.isatty()
        with tqdm(total=rows, initial=rows - left, unit=" rows", disable=quiet) as bar:
            for tally in engine.run(task, folder, todo) if todo else ():
                bar.update(tally.rows)
        if sources(source) != plan.sources:
            raise LatteMixError(f"{source} was changed while it was being read: begin anew.")
        return folder.finish(plan)


def _check_columns(columns: Sequence[str], keep: Sequence[str], metrics: Sequence[str]) -> None:
    if len(columns) not in (1, 2):
        raise LatteMixError(f"--columns {','.join(columns)}: name two to compare, or one to embed.")
    ours = (*metrics, "truncated", "error") if metrics else ("embedding", "truncated", "error")
    names = [*columns, *keep, *ours]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise LatteMixError(
            f"The results would have two columns {twice!r}: name others in --columns and --keep, "
            f"which are not {', '.join(ours)}."
        )
