"""The simulation beside measurements of the int8 server on a CPU."""

import json
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks.__main__ import RESULTS
from benchmarks.capacity import costs, plan
from benchmarks.capacity.mixes import MIXES
from benchmarks.capacity.simulation import Host, Outcome
from benchmarks.parts import load
from benchmarks.report import Table
from benchmarks.rounds import Spread

_MAX_WAIT = 1.0  # default of LATTEMIX_MAX_WAIT_SECONDS


class Point(NamedTuple):
    """A measurement at one load."""

    sent: float  # requests per second
    goodput: float
    p50: float  # milliseconds
    p99: float


# docs/performance.md, "Random arrivals".
QUIET_CAPACITY = 1582.0
QUIET = {
    10: Point(159, 159, 3.8, 10.3),
    50: Point(781, 781, 6.8, 18.9),
    80: Point(1269, 1268, 10.3, 32.8),
    120: Point(1902, 1699, 172.0, 447.6),
}


def cores_of(capacity: float) -> float:
    """Cores with which the simulated server has the measured capacity."""
    return capacity * plan.core_seconds(MIXES[0], costs.CPU_MODEL)


def simulate_quiet(percent: int) -> Outcome:
    """Simulate one of the loads in `QUIET`."""
    return simulate_cpu(QUIET[percent].sent, cores_of(QUIET_CAPACITY))


def simulate_cpu(rate: float, cores: float = costs.CPU_CORES, seconds: float = 15.0) -> Outcome:
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
    cores = cores_of(capacity)
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
