"""The directory of results: it grows beside its name, and gets that when it is complete."""

import os
from collections.abc import Callable
from pathlib import Path

from pydantic import ValidationError

from app.score.plan import Plan, Shard, Source, Tally, Task
from model_store import LatteMixError

# Readers of whole directories pass over names that begin like this.
_PLAN, _SUMMARY = "_plan.json", "_score.json"


class Summary(Plan):
    """A plan that was carried out."""

    tally: Tally


class Folder:
    """OUTPUT.partial, where parts are gathered, and OUTPUT in the end."""

    def __init__(self, output: Path) -> None:
        self.output = output.resolve()
        self.partial = self.output.with_name(f"{self.output.name}.partial")

    def begin(
        self, task: Task, sources: tuple[Source, ...], cut: Callable[[], tuple[Shard, ...]]
    ) -> Plan:
        """The plan that was begun here, which must be of the same task, or else a new one."""
        if self.output.exists():
            raise LatteMixError(f"{self.output} is there already: remove it, or choose another.")
        plan = self._begun()
        if plan is None:
            plan = Plan(task=task, sources=sources, shards=cut())
            self.partial.mkdir(exist_ok=True)
            _write(self.partial / _PLAN, plan.model_dump_json())
        elif (changed := _difference(plan, task, sources)) is not None:
            raise LatteMixError(
                f"{self.partial} was begun with {changed}: "
                "go on with the same, or remove it to begin anew."
            )
        return plan

    def _begun(self) -> Plan | None:
        path = self.partial / _PLAN
        try:
            return Plan.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return None
        except ValidationError:
            raise LatteMixError(f"{path} is damaged: remove {self.partial}.") from None

    def part(self, shard: Shard) -> Path:
        """Where the results of a shard go."""
        return self.partial / shard.part

    def record(self, shard: Shard, tally: Tally) -> None:
        """Say that a shard is done: until then it is not, whatever is there."""
        _write(self._tally(shard), tally.model_dump_json())

    def done(self, shard: Shard) -> Tally | None:
        """What became of a shard, if it is done."""
        try:
            return Tally.model_validate_json(self._tally(shard).read_bytes())
        except FileNotFoundError:
            return None

    def finish(self, plan: Plan) -> Tally:
        """Give the results their name, and return what became of all rows."""
        total = Tally()
        for shard in plan.shards:
            total.add(self.done(shard) or Tally())
        summary = Summary(**dict(plan), tally=total)
        _write(self.partial / _SUMMARY, summary.model_dump_json(indent=1))
        kept = {_SUMMARY, *(shard.part for shard in plan.shards)}
        for file in self.partial.iterdir():  # with what a kill may have left
            if file.name not in kept:
                file.unlink()
        self.partial.rename(self.output)
        return total

    def _tally(self, shard: Shard) -> Path:
        return self.partial / f"_{shard.part}.json"


def _difference(plan: Plan, task: Task, sources: tuple[Source, ...]) -> str | None:
    """How what was begun differs from what is asked for, in words."""
    begun = dict(plan.task)
    for name, value in task:
        if begun[name] != value:
            shown = ",".join(begun[name]) if isinstance(begun[name], tuple) else begun[name]
            return f"another {name.replace('_', ' ')} ({shown})"
    if plan.sources != sources:
        return "other input files, or they have changed since"
    return None


def _write(path: Path, text: str) -> None:
    """Write a file that is there as a whole, or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(text, encoding="utf-8")
    part.replace(path)
