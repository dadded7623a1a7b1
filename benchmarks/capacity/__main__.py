"""Measure the host's costs, validate the simulation on the CPU, and plan for GPUs."""

import sys
from functools import partial

from benchmarks.__main__ import RESULTS
from benchmarks.capacity import costs, host, plan
from benchmarks.capacity.mixes import MIXES
from benchmarks.capacity.validation import validate
from benchmarks.report import Table, spread_cell
from benchmarks.rounds import run_rounds

ROUNDS, SECONDS = 3, 2.0
EXAMPLES = [("L4", "1 pair", 1), ("L4", "1 pair", 4), ("L4", "32 sentences, npy", 2)]


def measure() -> None:
    """Print the cost of every kind of request, for `costs.py`."""
    from lattemix.encoder import Encoder
    from lattemix.settings import ModelSettings, read_settings

    server = host.start()
    try:
        measurements = {
            f"{mix.name}/host": partial(host.measure, mix, server, SECONDS) for mix in MIXES
        }
        series = run_rounds(measurements, ROUNDS)
    finally:
        server.close()
    prefix = f"{MIXES[0].name}/host/"
    measures = [key.removeprefix(prefix) for key in series if key.startswith(prefix)]
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
