"""Plots of the results. In comparisons our model is blue and others are grey; int8 is darker."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from benchmarks.parts import load
from benchmarks.parts.latency import PERCENTILES, SHARES, workload_name
from benchmarks.processes import Sample
from benchmarks.report import system_names
from benchmarks.rounds import Series, Spread
from benchmarks.soak import Interval
from benchmarks.systems import is_ours

# From the palette of Okabe and Ito, made for colour-blind readers.
DARK, LIGHT, ORANGE, GREY, BLACK = "#0072B2", "#56B4E9", "#D55E00", "#8C8C8C", "#4D4D4D"
STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "font.size": 9.5,
    "figure.dpi": 130,
    "legend.frameon": False,
}


def draw(results: Mapping[str, Series], folder: Path) -> list[Path]:
    """Write `<part>.png` for every part with a plot; return the paths."""
    paths = []
    with plt.rc_context(STYLE):
        for part, plot in _PLOTS.items():
            if series := results.get(part):
                paths.append(folder / f"{part}.png")
                _save(plot(series), paths[-1])
    return paths


def _save(figure: Figure, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight")
    plt.close(figure)


def _throughput(series: Series) -> Figure:
    """A bar per system, with the range over the rounds."""
    names = system_names(series, "bulk", "rate")
    spreads = {name: Spread.of(series[f"bulk/{name}/rate"]) for name in names}
    names.sort(key=lambda name: spreads[name].median)
    medians = [spreads[name].median for name in names]
    figure, axes = plt.subplots(figsize=(7, 0.36 * len(names) + 1.1))
    axes.barh(names, medians, color=[_colour(name) for name in names])
    for position, name in enumerate(names):
        median, low, high = spreads[name]
        axes.hlines(position, low, high, color="black")
        axes.text(high, position, f" {median:,.0f}", va="center")
    title = "Sentences in bulk. Ours: blue. Servers: 32 texts per request, 8 clients"
    axes.set(xlabel="sentences per second", title=title)
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    axes.margins(x=0.12)
    return figure


def _latency(series: Series) -> Figure:
    """A panel per number of clients, a line per system."""
    figure, panels = plt.subplots(1, len(SHARES), figsize=(9.5, 3.2), layout="constrained")
    for axes, clients in zip(panels, SHARES, strict=True):
        workload = workload_name(clients)
        for name in system_names(series, workload, "p50 ms"):
            axes.plot(
                [f"p{p}" for p in PERCENTILES],
                _medians(series, [f"{workload}/{name}/p{p} ms" for p in PERCENTILES]),
                marker="o",
                color=_colour(name),
                linestyle=":" if name.startswith("bare call") else "-",
                label=name,
            )
        axes.set_ylim(bottom=0)
        axes.set_title(workload)
    panels[0].set_ylabel("milliseconds per sentence")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _load(series: Series) -> Figure:
    """Latency on the left, goodput on the right."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")

    def medians(measure: str) -> list[float]:
        return _medians(series, [f"{percent} %/{load.SERVER}/{measure}" for percent in load.LOADS])

    for percentile, colour in zip(PERCENTILES, (DARK, LIGHT, GREY), strict=True):
        values = medians(f"p{percentile} ms")
        left.plot(load.LOADS, values, marker="o", color=colour, label=f"p{percentile}")
    left.set(ylabel="milliseconds (logarithmic)", title="Latency from arrival")
    log_scale(left)
    for measure, colour, label in (("sent", GREY, "sent"), ("goodput", DARK, "answered 200")):
        right.plot(load.LOADS, medians(measure), marker="o", color=colour, label=label)
    (capacity,) = _medians(series, [f"{load.CAPACITY}/rate"])
    right.axhline(capacity, color=ORANGE, linestyle="--", label="capacity")
    right.set(ylabel="sentences per second", ylim=(0, None), title="Goodput; the rest gets 429")
    for axes in (left, right):
        axes.set_xticks(load.LOADS)
        axes.set_xlabel("load, % of capacity")
        axes.legend()
    return figure


def draw_soak(
    samples: Sequence[Sample], overload_start: float, intervals: Sequence[Interval], path: Path
) -> None:
    """Memory, files, threads and latency over time; a dotted line marks the overload's start."""
    minutes = [sample.seconds / 60 for sample in samples]
    with plt.rc_context(STYLE):
        figure, panels = plt.subplots(4, 1, figsize=(7, 8), sharex=True, layout="constrained")
        fields = {"megabytes": "resident, MB", "files": "open files", "threads": "threads"}
        for axes, (field, label) in zip(panels, fields.items(), strict=False):
            axes.plot(minutes, [getattr(sample, field) for sample in samples], color=DARK)
            axes.set_ylabel(label)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))
            axes.axvline(overload_start / 60, color=GREY, linestyle=":")
        ends = [interval.end / 60 for interval in intervals]
        panels[3].plot(ends, [i.p99 for i in intervals], ".-", color=ORANGE, label="p99")
        panels[3].plot(ends, [i.p50 for i in intervals], ".-", color=LIGHT, label="p50")
        panels[3].set(ylabel="latency, ms (log)", xlabel="minutes")
        log_scale(panels[3])
        panels[3].axvline(overload_start / 60, color=GREY, linestyle=":")
        panels[3].legend(loc="upper left", ncols=2)
        panels[0].set_title("Half the capacity, then overload (dotted line), then half again")
        _save(figure, path)


def log_scale(axes: Axes, axis: str = "y") -> None:
    """Make an axis logarithmic, with plain numbers at 1, 2 and 5."""
    axes.set(**{f"{axis}scale": "log"})
    scale = getattr(axes, f"{axis}axis")
    scale.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    scale.set_major_formatter(StrMethodFormatter("{x:,g}"))
    scale.set_minor_formatter(NullFormatter())


def _medians(series: Series, keys: Sequence[str]) -> list[float]:
    return [Spread.of(series[key]).median for key in keys]


def _colour(name: str) -> str:
    if not is_ours(name):
        return BLACK if "int8" in name else GREY
    return DARK if "int8" in name else LIGHT


_PLOTS: dict[str, Callable[[Series], Figure]] = {
    "throughput": _throughput,
    "latency": _latency,
    "load": _load,
}
