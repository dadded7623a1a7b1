"""`python -m benchmarks.check`: which ratios have moved since `recorded.json`.

By a run of fewer rounds, with turns as long. Ratios only: what a machine does in a second says
little of another's. Ends with 1 if one of them has moved for the worse, or was not measured.
"""

import json
import sys
from collections.abc import Mapping
from typing import Any

from benchmarks import suite
from benchmarks.aims import AIMS
from benchmarks.record import RECORDED, Move, compare
from benchmarks.report import Table


def main() -> None:
    """Measure, compare and say what moved."""
    if not RECORDED.exists():
        sys.exit(f"There is no {RECORDED.name}: `python -m benchmarks --record` writes it.")
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    parts = list(dict.fromkeys(aim.part for aim in AIMS if aim.bottom is not None))
    results, _ = suite.run(suite.plan(quick=True, seconds=recorded["seconds"]), parts)
    moves = compare(recorded, results)
    print(f"\n{table(moves)}")
    if other := difference(recorded["machine"], suite.machine()):
        print(f"The record is of another machine: {other}. Its ratios may differ, too.")
    worse = [move.aim.name for move in moves if move.worse]
    if worse:
        print(f"Worse than recorded: {'; '.join(worse)}.")
    missing = recorded["ratios"].keys() - {move.aim.name for move in moves}
    if missing:
        print(f"Recorded, but not measured now: {'; '.join(sorted(missing))}.")
    sys.exit(1 if worse or missing else 0)


def table(moves: list[Move]) -> Table:
    """Every ratio then and now."""
    rows = [
        [
            move.aim.name,
            f"{move.old:.2f}",
            f"{move.new:.2f}",
            f"{move.change:+.0%}",
            ("worse" if move.worse else "better") if move.moved else "",
        ]
        for move in moves
    ]
    note = "Moved: by more than a tenth, and out of the range of the recorded rounds."
    return Table("Ratios", ["", "recorded", "now", "change", "moved"], rows, note)


def difference(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In which processor or number of cores two machines differ."""
    kinds = [kind for kind in ("cpu", "cores") if then[kind] != now[kind]]
    return "; ".join(f"{kind} {then[kind]} there, {now[kind]} here" for kind in kinds)


if __name__ == "__main__":
    main()
