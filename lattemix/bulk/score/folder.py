"""The directory of results: it grows beside its name, and gets that when it is complete."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from lattemix.bulk.score.plan import Plan, Shard, Source, Tally, Task
from model_store import LatteMixError

# Readers of whole directories pass over names that begin like this.
_LOCK, _PLAN, _SUMMARY = "_lock", "_plan.json", "_score.json"


class Summary(Plan):
    """A plan that was carried out."""

    tally: Tally


class Folder:
    """OUTPUT.partial, where parts are gathered, and OUTPUT in the end."""

    def __init__(self, output: Path) -> None:
        self.output = output.absolute()
        self.partial = Path(f"{self.output}.partial")

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other runs out; leave nothing behind if no work was begun."""
        self._check()
        self.partial.mkdir(exist_ok=True)
        with (self.partial / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LatteMixError(f"Another run is at work in {self.partial}.") from None
            self._check()  # it may have been finished meanwhile
            try:
                yield
            finally:
                if self.partial.exists() and not (self.partial / _PLAN).exists():
                    (self.partial / _LOCK).unlink()
                    self.partial.rmdir()

    def _check(self) -> None:
        if self.output.exists():
            raise LatteMixError(f"{self.output} is there already: remove it, or choose another.")
        if not self.output.parent.is_dir():
            raise LatteMixError(f"{self.output}: there is no directory {self.output.parent}.")

    def begin(
        self, task: Task, sources: tuple[Source, ...], cut: Callable[[], tuple[Shard, ...]]
    ) -> Plan:
        """The plan that was begun here, which must be of the same task, or else a new one."""
        path = self.partial / _PLAN
        try:
            plan = Plan.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            plan = Plan(task=task, sources=sources, shards=cut())
            _write(path, plan.model_dump_json())
        except ValidationError:
            raise LatteMixError(f"{path} is damaged: remove {self.partial}.") from None
        changed = _difference(plan, task, sources)
        if changed is not None:
            raise LatteMixError(
                f"{self.partial} was begun with {changed}: "
                "go on with the same, or remove it to begin anew."
            )
        return plan

    def part(self, shard: Shard) -> Path:
        """Where the results of a shard go."""
        return self.partial / shard.part

    def record(self, shard: Shard, tally: Tally) -> None:
        """Say that a shard is done: until then it is not, whatever is there."""
        _write(self._tally(shard), tally.model_dump_json())

    def done(self, shard: Shard) -> Tally | None:
        """What became of a shard, if it is done."""
        try:
            tally = Tally.model_validate_json(self._tally(shard).read_bytes())
        except (FileNotFoundError, ValidationError):  # the latter, of a machine that lost power
            return None
        return tally if self.part(shard).exists() else None

    def finish(self, plan: Plan) -> Tally:
        """Give the results their name, and return what became of all rows."""
        total = Tally()
        for shard in plan.shards:
            tally = self.done(shard)
            if tally is None:
                raise LatteMixError(f"{self.part(shard)} has gone: run the same again.")
            total.add(tally)
        summary = Summary(**dict(plan), tally=total)
        _write(self.partial / _SUMMARY, summary.model_dump_json(indent=1))
        self.partial.rename(self.output)
        for file in self.output.iterdir():  # last, so that a stop before leaves all or a whole
            if file.name[0] in "._" and file.name != _SUMMARY:
                file.unlink()
        return total

    def _tally(self, shard: Shard) -> Path:
        return self.partial / f"_{shard.part}.json"


def _difference(plan: Plan, task: Task, sources: tuple[Source, ...]) -> str | None:
    """How what was begun differs from what is asked for, in words."""
    begun = dict(plan.task)
    for name, value in task:
        if begun[name] != value:
            if name == "model_digest":
                return f"another {task.model} in the store"
            shown = ",".join(begun[name]) if isinstance(begun[name], tuple) else begun[name]
            return f"--{name.replace('_', '-')} {shown or 'of nothing'}"
    if plan.sources != sources:
        return "other input files, or they have changed since"
    return None


def _write(path: Path, text: str) -> None:
    """Write a file that is there as a whole, or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
