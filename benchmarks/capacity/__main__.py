"""Measure the host's costs, validate the simulation on the CPU, and plan for GPUs."""

import json
import sys
from dataclasses import replace
from pathlib import Path

from benchmarks.__main__ import RESULTS
from benchmarks.capacity import costs, host, plan
from benchmarks.capacity.mixes import MIXES
from benchmarks.capacity.simulation import Host, Outcome
from benchmarks.parts import load
from benchmarks.report import Table, spread_cell
from benchmarks.rounds import Spread, run_rounds

ROUNDS, SECONDS = 3, 2.0
EXAMPLES = [("L4", "1 pair", 8), ("L4", "32 sentences, npy", 4), ("A100", "32 pairs", 8)]
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


def validate(results: Path = RESULTS / "bench.json") -> Table:
    """Simulation beside `make bench BENCH=load`, at the same arrival rates.

    A virtual machine has less than its cores: they are chosen for the measured capacity. The
    latencies follow from that alone.
    """
    series = json.loads(results.read_text())["parts"]["load"]
    capacity = Spread.of(series[f"{load.CAPACITY}/rate"]).median
    cores = capacity * plan.core_seconds(MIXES[0], costs.CPU_MODEL)
    rows = []
    for percent in load.LOADS:
        key = f"{percent} %/{load.SERVER}"
        rate = Spread.of(series[f"{key}/sent"]).median
        outcomes = [simulate_cpu(rate, each) for each in (cores, costs.CPU_CORES)]
        row = [f"{percent} %", f"{rate:,.0f}", spread_cell(series, f"{key}/goodput")]
        row += [f"{each.completed / each.elapsed:,.0f}" for each in outcomes]
        for percentile in (50, 99):
            row.append(spread_cell(series, f"{key}/p{percentile} ms", ",.1f"))
            row += [f"{each.milliseconds(percentile):,.1f}" for each in outcomes]
        rows.append(row)
    simulated = [f"{cores:.2f} cores", f"{costs.CPU_CORES:g} cores"]
    columns = ["load", "sent/s", "200/s", *simulated]
    columns += ["p50, ms", *simulated, "p99, ms", *simulated]
    return Table("Simulation beside measurement, int8 on two cores", columns, rows)


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
    commands = {"host": measure, "validate": lambda: print(validate()), "plan": plan_gpus}
    if len(sys.argv) != 2 or sys.argv[1] not in commands:
        sys.exit(f"Usage: python -m benchmarks.capacity {' | '.join(commands)}")
    commands[sys.argv[1]]()


if __name__ == "__main__":
    main()
