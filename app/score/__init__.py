"""`lattemix score`: files that fit no memory, shard by shard, here or on a Ray cluster."""

import sys
from collections.abc import Sequence
from pathlib import Path

from tqdm import tqdm

from app import results
from app.score.engines import Engine, Local, OnRay
from app.score.folder import Folder
from app.score.plan import Tally, Task, cut, digest, sources
from app.similarity import check
from app.tables import Table, columns_named
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
    engine: Engine,
) -> Tally:
    """Write a directory of results for the rows of a file, or of a directory of files.

    What an earlier run of the same has finished is not done again.

    Args:
        source: what to read.
        output: where to write; it appears when it is complete.
        columns: two whose texts are compared, or one whose texts are embedded.
        keep: others to carry over, as text.
        metrics: of comparisons.
        parts: the kind of file to write; else that of the input.
        shard_rows: rows in a shard, which is what is lost at most when a worker is.
        engine: who does it.
    """
    _check_columns(columns, keep, metrics)
    found = sources(source)
    for file in found:
        Table(Path(file.path), columns_named(columns))  # a kind that is not read is named at once
    parts = parts or Path(found[0].path).suffix.lower().removeprefix(".")
    results.check(output.with_suffix(f".{parts}"))
    settings = engine.settings
    artifact, _ = choose(Store(settings.store), settings.model, engine.device)
    pairs = len(columns) == 2
    for metric in metrics if pairs else ():
        check(metric, artifact.centre)
    task = Task(
        columns=tuple(columns),
        keep=tuple(keep),
        metrics=tuple(metrics) if pairs else (),
        parts=parts,
        shard_rows=shard_rows,
        model=artifact.manifest.reference,
        model_digest=digest(artifact.manifest),
    )
    folder = Folder(output)
    plan = folder.begin(task, found, lambda: cut(found, task))
    todo = [shard for shard in plan.shards if folder.done(shard) is None]
    rows, left = (sum(shard.rows for shard in some) for some in (plan.shards, todo))
    with tqdm(
        total=rows, initial=rows - left, unit=" rows", disable=not sys.stderr.isatty()
    ) as bar:
        for tally in engine.run(task, folder, todo) if todo else ():
            bar.update(tally.rows)
    return folder.finish(plan)


def _check_columns(columns: Sequence[str], keep: Sequence[str], metrics: Sequence[str]) -> None:
    if len(columns) not in (1, 2):
        raise LatteMixError(f"--columns {','.join(columns)}: name two to compare, or one to embed.")
    ours = (*metrics, "embedding", "truncated", "error")
    all_names = [*columns, *keep, *ours]
    twice = next((name for name in all_names if all_names.count(name) > 1), None)
    if twice is not None:
        raise LatteMixError(
            f"The results would have two columns {twice!r}: name others in --columns and --keep, "
            f"which are not {', '.join(ours)}."
        )
