"""`python -m benchmarks [PART ...]`: measure, print, and keep it in `benchmarks/results/`."""

import argparse
import json
import sys
from pathlib import Path

from benchmarks import aims, suite
from benchmarks.record import RECORDED, record
from benchmarks.report import written
from benchmarks.stage import INFINITY, Plan

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    """Run the parts that are named, or all of them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(suite.PARTS))
    parser.add_argument("--rounds", type=int, help="rounds in which all take turns")
    parser.add_argument("--seconds", type=float, help="that a turn takes, about")
    parser.add_argument("--quick", action="store_true", help="less of everything: five minutes")
    parser.add_argument("--requests", type=int, help="of the memory part")
    parser.add_argument("--backbone", help="of the graph part")
    parser.add_argument("--head", type=Path, help="of the graph part: its directory")
    parser.add_argument("--record", action="store_true", help=f"keep the ratios in {RECORDED.name}")
    options = parser.parse_args()
    if unknown := set(options.parts) - suite.PARTS.keys():
        parser.error(f"there is no part {', '.join(sorted(unknown))}; {', '.join(suite.PARTS)}")
    if options.record and (options.quick or options.parts):
        parser.error("--record is for a full run")
    chosen = ("rounds", "seconds", "requests", "backbone", "head")
    given = {name: getattr(options, name) for name in chosen if getattr(options, name) is not None}
    plan = suite.plan(options.quick, **given)
    if not INFINITY.exists():
        print(
            f"infinity is left out: {INFINITY.parent.parent} is not there; `make bench` makes it."
        )
    results, failed = suite.run(plan, options.parts)
    keep(results, plan)
    if failed:
        sys.exit(f"There is nothing of {', '.join(failed)}: see above.")
    if options.record:
        record(results, suite.machine(), plan.seconds)


def keep(results: suite.Results, plan: Plan) -> None:
    """Print what was measured and write it down."""
    text = written([*suite.tables(results), aims.table(results)])
    print(f"\n{text}")
    RESULTS.mkdir(exist_ok=True)
    everything = {"machine": suite.machine(), "plan": suite.described(plan), "parts": results}
    (RESULTS / "bench.json").write_text(json.dumps(everything, indent=1) + "\n")
    (RESULTS / "bench.md").write_text(f"# Benchmarks\n\n{suite.heading()}\n\n{text}")
    from benchmarks import plots  # only here: no contestant's process is to load it

    for path in plots.draw(results, RESULTS):
        print(f"wrote {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
