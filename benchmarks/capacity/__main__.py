"""Measure the host's costs, validate the simulation on the CPU, and plan for GPUs."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.__main__ import RESULTS
from benchmarks.capacity import costs, host, plan
from benchmarks.capacity.mixes import MIXES
from benchmarks.capacity.simulation import Host, Outcome
from benchmarks.parts import load
from benchmarks.report import Table, spread_cell
from benchmarks.rounds import Spread, run_rounds

ROUNDS, SECONDS = 3, 2.0
EXAMPLES = [
    ("L4", "1 pair", 1),
    ("L4", "1 pair", 4),
    ("L4", "32 sentences, npy", 2),
    ("A100", "32 pairs", 4),
]


class Point(NamedTuple):
    """A measurement at one load."""

    sent: float  # requests per second
    goodput: float
    p50: float  # milliseconds
    p99: float


# docs/performance.md, "Latency": an earlier version of the service.
QUIET_CAPACITY = 898.0
QUIET = {
    10: Point(87, 87, 5.4, 13.9),
    50: Point(456, 456, 10.1, 32.6),
    80: Point(721, 719, 15.3, 68.7),
    120: Point(1082, 878, 524.8, 839.9),
}
_MAX_WAIT = 1.0  # default of LATTEMIX_MAX_WAIT_SECONDS


def measure() -> None:
    """Print the cost of every kind of request, for `costs.py`."""
    from lattemix.encoder import Encoder
    from lattemix.settings import ModelSettings, read_settings

    server = host.start()
    try:
        measurements = {
            f"{mix.name}/host": lambda number, mix=mix: host.measure(
                mix, server, SECONDS, f"host {number}"
            )
            for mix in MIXES
        }
        series = run_rounds(measurements, ROUNDS)
    finally:
        server.close()
    measures = [key.rpartition("/")[2] for key in series if key.startswith(f"{MIXES[0].name}/")]
    rows = [
        [mix.name, *(spread_cell(series, f"{mix.name}/host/{name}") for name in measures)]
        for mix in MIXES
    ]
    print(Table("Cost of a request, server with a model that costs nothing", ["", *measures], rows))
    encoder = Encoder.load(read_settings(ModelSettings, model="default:int8"))
    rate = encoder.tokens_per_second / encoder.parallel
    print(
        f"CPU model: {1e6 / rate:.1f} us per token, {encoder.overhead / rate * 1e3:.2f} ms per "
        f"batch, budget {encoder.token_budget}, {encoder.parallel} batches at once"
    )


def simulate_cpu(rate: float, cores: float = costs.CPU_CORES, seconds: float = 30.0) -> Outcome:
    """Simulate the int8 server with single sentences, and the load generator on its cores."""
    mix = MIXES[0]
    cost = costs.HOST_COSTS[mix.name]
    cost = replace(cost, tokenizer=cost.tokenizer + costs.CLIENT_SECONDS)
    return plan.run(mix, costs.CPU_MODEL, cost, Host(1, cores, _MAX_WAIT), rate, seconds)


def validate(results: Path = RESULTS / "bench.json") -> None:
    """Print the simulation beside measurements: of a quiet day, and of `make bench BENCH=load`."""
    print(compare("quiet machine, docs/performance.md", QUIET_CAPACITY, QUIET))
    if results.exists():
        series = json.loads(results.read_text())["parts"]["load"]

        def median(key: str) -> float:
            return Spread.of(series[key]).median

        keys = {percent: f"{percent} %/{load.SERVER}" for percent in load.LOADS}
        measures = ("sent", "goodput", "p50 ms", "p99 ms")
        measured = {
            percent: Point(*(median(f"{key}/{measure}") for measure in measures))
            for percent, key in keys.items()
        }
        print(compare(str(results), median(f"{load.CAPACITY}/rate"), measured))


def compare(source: str, capacity: float, measured: dict[int, Point]) -> Table:
    """Simulate the measured arrival rates.

    A virtual machine has less than its cores: they are chosen for the measured capacity, and the
    rest follows.
    """
    cores = capacity * plan.core_seconds(MIXES[0], costs.CPU_MODEL)
    rows = []
    for percent, point in measured.items():
        outcome = simulate_cpu(point.sent, cores)
        rows.append([f"{percent} %", f"{point.sent:,.0f}"])
        for value, simulated in (
            (point.goodput, outcome.completed / outcome.elapsed),
            (point.p50, outcome.milliseconds(50)),
            (point.p99, outcome.milliseconds(99)),
        ):
            rows[-1] += [f"{value:,.1f}", f"{simulated:,.1f}", f"{simulated / value:.2f}"]
    columns = ["load", "sent/s"]
    for measure in ("200/s", "p50, ms", "p99, ms"):
        columns += [measure, "simulated", "ratio"]
    note = (
        f"Capacity with 64 clients: {capacity:,.0f} sentences/s, simulated with {cores:.2f} cores."
    )
    return Table(f"int8 on two cores: {source}", columns, rows, note)


def plan_gpus() -> None:
    """Print what follows from the parameters, and draw it."""
    gpus = {gpu.name: gpu for gpu in costs.GPUS}
    mixes = {mix.name: mix for mix in MIXES}
    print(plan.sources(), plan.capacities(), sep="\n")
    for gpu, mix, processes in EXAMPLES:
        print(plan.latencies(gpus[gpu], mixes[mix], processes))
    from benchmarks.capacity import plot

    print(f"wrote {plot.draw(RESULTS)}")


def main() -> None:
    """Run a command."""
    commands = {"host": measure, "validate": validate, "plan": plan_gpus}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(f"Usage: python -m benchmarks.capacity {' | '.join(commands)}")
    commands[sys.argv[1]]()


if __name__ == "__main__":
    main()
