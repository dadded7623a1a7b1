"""The output directory, which gets its name when it is complete."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from lattemix.bulk.score.plan import Plan, Shard, Source, Tally, Task
from model_store import LatteMixError

# Readers of whole directories, such as Spark and pyarrow, skip names with this prefix.
_LOCK, _PLAN, _SUMMARY = "_lock", "_plan.json", "_score.json"


class Summary(Plan):
    """A completed plan."""

    tally: Tally


class Folder:
    """OUTPUT.partial while shards are computed, then OUTPUT."""

    def __init__(self, output: Path) -> None:
        self.output = output.absolute()
        self.partial = Path(f"{self.output}.partial")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other runs; remove the directory if no plan was written."""
        self._check()
        self.partial.mkdir(exist_ok=True)
        with (self.partial / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LatteMixError(f"Another run is writing to {self.partial}.") from None
            self._check()  # another run may have finished in between
            try:
                yield
            finally:
                if self.partial.exists() and not (self.partial / _PLAN).exists():
                    (self.partial / _LOCK).unlink()
                    self.partial.rmdir()

    def _check(self) -> None:
        if self.output.exists():
            raise LatteMixError(f"{self.output} exists: remove it, or choose another.")
        if not self.output.parent.is_dir():
            raise LatteMixError(f"{self.output}: there is no directory {self.output.parent}.")

    def begin(
        self,
        task: Task,
        sources: tuple[Source, ...],
        make_shards: Callable[[], tuple[Shard, ...]],
    ) -> Plan:
        """Return the plan of an interrupted run, or a new one; raise if it has another task."""
        path = self.partial / _PLAN
        try:
            plan = Plan.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            plan = Plan(task=task, sources=sources, shards=make_shards())
            _write(path, plan.model_dump_json())
        except ValidationError:
            raise LatteMixError(f"{path} is damaged: remove {self.partial}.") from None
        difference = _difference(plan, task, sources)
        if difference is not None:
            raise LatteMixError(
                f"{self.partial} was started with {difference}: "
                "continue with the same, or remove it to start again."
            )
        return plan

    def part(self, shard: Shard) -> Path:
        """Path of a shard's results."""
        return self.partial / shard.part

    def record(self, shard: Shard, tally: Tally) -> None:
        """Mark a shard as finished."""
        _write(self._tally_path(shard), tally.model_dump_json())

    def tally(self, shard: Shard) -> Tally | None:
        """Return the counts of a shard; None if it is not finished."""
        try:
            tally = Tally.model_validate_json(self._tally_path(shard).read_bytes())
        except (FileNotFoundError, ValidationError):  # truncated by a power failure
            return None
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
        _write(self.partial / _SUMMARY, summary.model_dump_json(indent=1))
        self.partial.rename(self.output)
        for file in self.output.iterdir():  # last: an interrupted run needs its plan
            if file.name[0] in "._" and file.name != _SUMMARY:
                file.unlink()
        return total

    def _tally_path(self, shard: Shard) -> Path:
        return self.partial / f"_{shard.part}.json"


def _difference(plan: Plan, task: Task, sources: tuple[Source, ...]) -> str | None:
    """Describe how a plan differs from a task; None if it does not."""
    planned = dict(plan.task)
    for name, value in task:
        if planned[name] != value:
            if name == "fingerprint":
                return f"another {task.model} in the store"
            if name == "calibration":
                return f"another calibration of {task.model}"
            if name == "max_windows":
                return f"LATTEMIX_MAX_WINDOWS={planned[name]}"
            shown = ",".join(planned[name]) if isinstance(planned[name], tuple) else planned[name]
            return f"--{name.replace('_', '-')} {shown}" if shown else f"no --{name}"
    if plan.sources != sources:
        return "other input files, or they have changed since"
    return None


def _write(path: Path, text: str) -> None:
    """Write a file atomically."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
