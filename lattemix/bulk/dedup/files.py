"""De-duplicate files: what `lattemix dedup` does."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lattemix.bulk.dedup.inputs import Input, InputFiles
from lattemix.bulk.dedup.options import Options, Resolved, resolve_options
from lattemix.bulk.dedup.outcome import find_duplicates
from lattemix.bulk.dedup.output import OutputFiles
from lattemix.bulk.dedup.pipeline import progress_bar
from lattemix.bulk.dedup.rows import Rows, read_rows
from lattemix.bulk.dedup.summary import Summary, summarize
from lattemix.bulk.dedup.task import Plan, Task
from lattemix.bulk.folder import (
    check_new,
    check_same,
    locked,
    read_plan,
    task_difference,
    write_text,
)
from lattemix.bulk.runners import Runner
from lattemix.bulk.writers import Origin
from model_store import LatteMixError

SUMMARY = "summary.json"


def dedup_files(
    source: Input,
    output: Path,
    work: Path,
    options: Options,
    start_runner: Callable[[], Runner],
) -> Summary:
    """Write a directory with the kept rows of files, a list of the dropped ones, and a summary.

    Args:
        source: files to read.
        output: directory to write; it appears when it is complete.
        work: directory of intermediate results.
        options: how to find duplicates, and which of them to keep.
        start_runner: called after the arguments have been checked.
    """
    output, work = output.absolute(), work.absolute()
    for directory in (output, work):
        source.check_outside(directory)
    if work == output:
        raise LatteMixError(f"{output} cannot be both the output and the work directory.")
    check_new(output)
    files = source.files()
    if options.against_only and not files.references:
        raise LatteMixError("--against-only needs --against.")
    with locked(work):
        runner = start_runner()
        resolved = resolve_options(options, runner.settings, runner.device, source.column)
        numbers = source.numbers(files)  # an invalid one is better found before the work
        _begin(work, source, files, resolved.task)
        first_input = int(Rows.load(work).starts[len(files.references)])
        outcome = find_duplicates(work, runner, options, resolved, first_input, numbers)
        if source.files() != files:
            raise LatteMixError(f"{source.source} changed while it was read: remove {work}.")
        names = source.names(files)
        summary = summarize(outcome, options, resolved, first_input, names)
        out = OutputFiles(outcome.rows, source, files)
        with _new_directory(output) as directory:
            out.write_kept(directory, outcome.decided.kept)
            dropped = directory / f"dropped{_table_type(files)}"
            out.write_dropped(dropped, outcome.decided, _origin(resolved))
            write_text(directory / SUMMARY, summary.model_dump_json(indent=1) + "\n")
    return summary


def work_path(output: Path) -> Path:
    """Default directory of the intermediate results of an output."""
    return output.with_name(f"{output.name}.work")


def _begin(work: Path, source: Input, files: InputFiles, task: Task) -> None:
    """Read the rows and write a plan, unless an earlier run has; check that it has this one."""
    plan = Plan(task=task, against=files.references, sources=files.sources)

    def make() -> Plan:
        with progress_bar("Reading", "rows") as bar:
            read_rows(work, files.paths, source.row_format, bar.update)
        return plan

    planned = read_plan(work, make, Plan)
    difference = task_difference(planned.task, task, lambda *field: _special(task, *field))
    if difference is None and planned.files != plan.files:
        difference = "other input files, or they have changed since"
    check_same(work, difference)


def _special(task: Task, name: str, planned: object) -> str | None:
    """Describe a field that is not an option of its own."""
    match name:
        case "candidates":
            assert isinstance(planned, type(task.candidates))
            same = planned.model == task.candidates.model
            option = f"--model {planned.model} and the metric {planned.metric}"
            return f"another {planned.model} in the store, or metric" if same else option
        case "max_windows":
            return f"LATTEMIX_MAX_WINDOWS={planned}"
    return None


def _origin(resolved: Resolved) -> Origin:
    """Return the model of the scores, or both."""
    scorers = [resolved.task.candidates, resolved.comparison.rescorer]
    used = [scorer for scorer in scorers if scorer is not None]
    return Origin(
        model="+".join(scorer.model for scorer in used),
        fingerprint="+".join(scorer.fingerprint for scorer in used),
    )


def _table_type(files: InputFiles) -> str:
    """File type of the list of dropped rows: the input's, or .jsonl for text."""
    suffix = files.paths[-1].suffix.lower()
    return ".jsonl" if suffix == ".txt" else suffix


@contextmanager
def _new_directory(path: Path) -> Iterator[Path]:
    """Make a directory that gets its name when it is complete."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(part, ignore_errors=True)  # of a killed process with the same id: a container's
    part.mkdir()
    try:
        yield part
        check_new(path)  # another run may have finished in between
        part.rename(path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
