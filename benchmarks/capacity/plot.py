"""Latency by rate, for several numbers of processes on one GPU."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

from benchmarks.capacity import costs, plan
from benchmarks.capacity.mixes import MIXES
from benchmarks.capacity.simulation import Host
from benchmarks.plots import DARK, GREY, LIGHT, ORANGE, STYLE

PROCESSES = dict(zip((1, 2, 4, 8), (GREY, LIGHT, DARK, ORANGE), strict=True))
PANELS = {"1 pair": "Single pairs", "32 sentences, npy": "32 sentences per request"}
_POINTS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)


def draw(folder: Path, gpu_name: str = "L4") -> Path:
    """Write `capacity.png`; return its path."""
    (gpu,) = (gpu for gpu in costs.GPUS if gpu.name == gpu_name)
    mixes = {mix.name: mix for mix in MIXES}
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
        for axes, (name, title) in zip(panels, PANELS.items(), strict=True):
            mix, cost = mixes[name], costs.HOST_COSTS[name]
            limits = plan.gpu_limits(mix, gpu)
            for processes, colour in PROCESSES.items():
                capacity = min(limits.host, processes * limits.process)
                rates = [load * capacity for load in _POINTS]
                p99 = [
                    plan.run(
                        mix, gpu.served(), cost, Host(processes), rate, plan.REQUESTS / rate
                    ).milliseconds(99)
                    for rate in rates
                ]
                label = f"{processes} process" + ("es" if processes > 1 else "")
                axes.plot(rates, p99, marker="o", color=colour, label=label)
            axes.set(title=title, xlabel="requests per second", yscale="log", xlim=(0, None))
        panels[0].set_ylabel("p99, milliseconds (logarithmic)")
        panels[0].legend()
        path = folder / "capacity.png"
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, bbox_inches="tight")
        plt.close(figure)
    return path
