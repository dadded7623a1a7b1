"""Latency by rate and number of processes, and the simulation beside a measurement."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.capacity import costs, plan
from benchmarks.capacity.mixes import MIXES
from benchmarks.capacity.simulation import Host
from benchmarks.capacity.validation import QUIET, simulate_quiet
from benchmarks.plots import DARK, GREY, LIGHT, ORANGE, STYLE, log_scale

PROCESSES = dict(zip((1, 2, 4, 8), (GREY, LIGHT, DARK, ORANGE), strict=True))


def draw(folder: Path) -> Path:
    """Write `capacity.png`; return its path."""
    path = folder / "capacity.png"
    folder.mkdir(parents=True, exist_ok=True)
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.5), layout="constrained")
        _latencies(left, "L4", "1 pair")
        _validation(right)
        figure.savefig(path, bbox_inches="tight")
        plt.close(figure)
    return path


def _latencies(axes: Axes, gpu_name: str, mix_name: str) -> None:
    """p99 by rate, a line per number of processes."""
    (gpu,) = (gpu for gpu in costs.GPUS if gpu.name == gpu_name)
    (mix,) = (mix for mix in MIXES if mix.name == mix_name)
    limits, cost = plan.gpu_limits(mix, gpu), costs.HOST_COSTS[mix_name]
    for processes, colour in PROCESSES.items():
        capacity = min(limits.host, processes * limits.process)
        rates = [load * capacity for load in plan.LOADS]
        p99 = [
            plan.run(
                mix, gpu.served(), cost, Host(processes), rate, plan.requests(mix) / rate
            ).milliseconds(99)
            for rate in rates
        ]
        label = f"{processes} process" + ("es" if processes > 1 else "")
        axes.plot(rates, p99, marker="o", color=colour, label=label)
    axes.set(title=f"Simulated: single pairs, {gpu_name}", xlabel="pairs per second (logarithmic)")
    axes.set(ylabel="p99, milliseconds (logarithmic)")
    log_scale(axes, "x")
    log_scale(axes, "y")
    axes.legend()


def _validation(axes: Axes) -> None:
    """Measured and simulated latency of the CPU server by load."""
    loads = list(QUIET)
    outcomes = [simulate_quiet(percent) for percent in loads]
    for percentile, colour in ((99, DARK), (50, LIGHT)):
        measured = [getattr(point, f"p{percentile}") for point in QUIET.values()]
        simulated = [outcome.milliseconds(percentile) for outcome in outcomes]
        axes.plot(loads, measured, marker="o", color=colour, label=f"p{percentile}, measured")
        axes.plot(
            loads,
            simulated,
            marker="x",
            linestyle=":",
            color=colour,
            label=f"p{percentile}, simulated",
        )
    axes.set(title="int8 server, two cores, single sentences", xlabel="load, % of capacity")
    axes.set(ylabel="milliseconds (logarithmic)", xticks=loads)
    log_scale(axes)
    axes.legend()
