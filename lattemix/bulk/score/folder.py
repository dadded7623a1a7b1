"""The output directory of `lattemix score`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lattemix.bulk.folder import (
    check_new,
    check_same,
    locked,
    partial_path,
    read_plan,
    read_result,
    task_difference,
    write_text,
)
from lattemix.bulk.score.plan import Plan, Shard, Tally, Task
from lattemix.bulk.sources import Source
from model_store import LatteMixError

_SUMMARY = "_score.json"


class Summary(Plan):
    """A completed plan."""

    tally: Tally


class Folder:
    """OUTPUT.partial while shards are computed, then OUTPUT."""

    def __init__(self, output: Path) -> None:
        self.output = output.absolute()
        self.partial = partial_path(self.output)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other runs; remove the directory if no plan was written."""
        check_new(self.output)
        with locked(self.partial):
            check_new(self.output)  # another run may have finished in between
            yield

    def begin(
        self,
        task: Task,
        sources: tuple[Source, ...],
        make_shards: Callable[[], tuple[Shard, ...]],
    ) -> Plan:
        """Return the plan of an interrupted run, or a new one; raise if it has another task."""
        plan = read_plan(
            self.partial, lambda: Plan(task=task, sources=sources, shards=make_shards()), Plan
        )
        check_same(self.partial, _difference(plan, task, sources))
        return plan

    def part(self, shard: Shard) -> Path:
        """Path of a shard's results."""
        return self.partial / shard.part

    def record(self, shard: Shard, tally: Tally) -> None:
        """Mark a shard as finished."""
        write_text(self._tally_path(shard), tally.model_dump_json())

    def tally(self, shard: Shard) -> Tally | None:
        """Return the counts of a shard; None if it is not finished."""
        tally = read_result(self._tally_path(shard), Tally)
        return tally if self.part(shard).exists() else None

    def finish(self, plan: Plan) -> Tally:
        """Rename the directory, and return the counts of all rows."""
        total = Tally()
        for shard in plan.shards:
            tally = self.tally(shard)
            if tally is None:
                raise LatteMixError(f"{self.part(shard)} is missing: run the same command again.")
            total.add(tally)
        summary = Summary(**dict(plan), tally=total)
        write_text(self.partial / _SUMMARY, summary.model_dump_json(indent=1))
        self.partial.rename(self.output)
        for file in self.output.iterdir():  # last: an interrupted run needs its plan
            if file.name[0] in "._" and file.name != _SUMMARY:
                file.unlink()
        return total

    def _tally_path(self, shard: Shard) -> Path:
        return self.partial / f"_{shard.part}.json"


def _difference(plan: Plan, task: Task, sources: tuple[Source, ...]) -> str | None:
    """Describe how a plan differs from a task; None if it does not."""
    difference = task_difference(plan.task, task, lambda *field: _special(task, *field))
    if difference is None and plan.sources != sources:
        return "other input files, or they have changed since"
    return difference


def _special(task: Task, name: str, planned: object) -> str | None:
    match name:
        case "fingerprint":
            return f"another {task.model} in the store"
        case "calibration":
            return f"another calibration of {task.model}"
        case "max_windows":
            return f"LATTEMIX_MAX_WINDOWS={planned}"
    return None
