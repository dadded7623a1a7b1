"""Ratios of an earlier run, and which of them have moved since."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.aims import AIMS, Aim, Results
from benchmarks.rounds import Spread

RECORDED = Path(__file__).parent / "recorded.json"
LEAST = 0.1  # of the recorded median: less is no movement


class Move(NamedTuple):
    """A ratio then and now."""

    aim: Aim
    old: Spread
    new: Spread

    @property
    def change(self) -> float:
        """As a part of what it was."""
        return self.new.median / self.old.median - 1

    @property
    def moved(self) -> bool:
        """By more than a little, and by more than the rounds differ among themselves."""
        apart = self.new.low > self.old.high or self.new.high < self.old.low
        return abs(self.change) > LEAST and apart

    @property
    def worse(self) -> bool:
        """Whether it moved away from the aim."""
        return self.moved and not self.aim.better(self.new.median, self.old.median)


def spreads(results: Results) -> dict[str, Spread]:
    """The ratios of a run; what is not a ratio depends on the machine and on how much was done."""
    found = {aim.name: aim.values(results) for aim in AIMS if aim.bottom is not None}
    return {name: Spread.of(values) for name, values in found.items() if values}


def record(
    results: Results, machine: dict[str, Any], seconds: float, path: Path = RECORDED
) -> None:
    """Write the ratios of a run, where they were taken, and how long a turn was."""
    ratios = {name: spread._asdict() for name, spread in spreads(results).items()}
    kept = {"machine": machine, "seconds": seconds, "ratios": ratios}
    text = json.dumps(kept, indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def compare(recorded: dict[str, Any], results: Results) -> list[Move]:
    """Every ratio that both have."""
    now = spreads(results)
    return [
        Move(aim, Spread(**recorded["ratios"][aim.name]), now[aim.name])
        for aim in AIMS
        if aim.name in now and aim.name in recorded["ratios"]
    ]
