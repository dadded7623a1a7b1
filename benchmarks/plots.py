"""Pictures of a run. Ours is blue, in int8 darker; others are grey, and what limits is orange."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.parts import overload
from benchmarks.parts.latency import PERCENTILES, SHARES
from benchmarks.parts.memory import WHO
from benchmarks.report import contestants, workloads
from benchmarks.rounds import Series, Spread

# Of Okabe and Ito's, which the colour-blind tell apart.
DARK, LIGHT, ORANGE, GREY = "#0072B2", "#56B4E9", "#D55E00", "#8C8C8C"
_STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "font.size": 9.5,
    "figure.dpi": 130,
    "legend.frameon": False,
}


def draw(results: Mapping[str, Series], folder: Path) -> list[Path]:
    """Write a picture of everything that was measured."""
    written = []
    with plt.rc_context(_STYLE):
        for name, (part, picture) in _PICTURES.items():
            if series := results.get(part):
                figure = picture(series)
                written.append(folder / f"{name}.png")
                figure.savefig(written[-1], bbox_inches="tight")
                plt.close(figure)
    return written


def _throughput(series: Series) -> Figure:
    names = contestants(series, "bulk", "rate")
    names.sort(key=lambda who: Spread.of(series[f"bulk/{who}/rate"]).median)
    figure, axes = plt.subplots(figsize=(7, 0.36 * len(names) + 1.1))
    spreads = [Spread.of(series[f"bulk/{who}/rate"]) for who in names]
    bars = [spread.median for spread in spreads]
    axes.barh(
        names, bars, xerr=_ends(spreads), color=[_colour(who) for who in names], ecolor="black"
    )
    for place, spread in enumerate(spreads):
        axes.text(spread.high + max(bars) * 0.015, place, f"{spread.median:,.0f}", va="center")
    axes.set(xlabel="sentences per second", title="Bulk: 32 texts a request, 8 clients")
    axes.set_xlim(0, max(spread.high for spread in spreads) * 1.12)
    return figure


def _latency(series: Series) -> Figure:
    figure, panels = plt.subplots(1, len(SHARES), figsize=(9.5, 3.2), layout="constrained")
    for axes, clients in zip(panels, SHARES, strict=True):
        workload = "1 client" if clients == 1 else f"{clients} clients"
        names = contestants(series, workload, "p50 ms")
        for name in names:
            values = [Spread.of(series[f"{workload}/{name}/p{p} ms"]).median for p in PERCENTILES]
            bare = name.startswith("bare")
            axes.plot(
                [f"p{p}" for p in PERCENTILES],
                values,
                marker="o",
                color=_colour(name),
                linestyle=":" if bare else "-",
                label=name,
            )
        axes.set_ylim(bottom=0)
        axes.set_title(workload)
    panels[0].set_ylabel("milliseconds a sentence")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _load(series: Series) -> Figure:
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    loads, server = overload.LOADS, overload.SERVER
    for percentile, colour in zip(PERCENTILES, (DARK, LIGHT, GREY), strict=True):
        keys = [f"{load} %/{server}/p{percentile} ms" for load in loads]
        values = [Spread.of(series[key]).median for key in keys]
        left.plot(loads, values, marker="o", color=colour, label=f"p{percentile}")
    left.set(yscale="log", xlabel="load, % of capacity", ylabel="milliseconds (logarithmic)")
    left.set_title("Latency from the scheduled arrival")
    left.legend()
    capacity = Spread.of(series[f"capacity/{server}/rate"]).median
    for measure, colour, label in (("sent", GREY, "sent"), ("goodput", DARK, "answered 200")):
        values = [Spread.of(series[f"{load} %/{server}/{measure}"]).median for load in loads]
        right.plot(loads, values, marker="o", color=colour, label=label)
    right.axhline(capacity, color=ORANGE, linestyle="--", label="capacity")
    right.set(xlabel="load, % of capacity", ylabel="sentences per second", ylim=(0, None))
    right.set_title("Goodput; the rest is answered 429")
    right.legend()
    for axes in (left, right):
        axes.set_xticks(loads)
    return figure


def _scaling(series: Series) -> Figure:
    figure, panels = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
    (budget, memory), (length, batch) = panels
    _lines(budget, series, "budget", "rate", "tokens in a batch", "sentences per second")
    _lines(memory, series, "budget", "peak MB", "tokens in a batch", "peak memory, MB")
    _lines(length, series, "length", "rate", "tokens in a sentence", "sentences per second")
    length.set_yscale("log")
    _lines(batch, series, "batch", "rate", "sentences in a call", "sentences per second")
    titles = ("Token budget", "Memory of the process", "Length of sentences", "Size of a call")
    for axes, title in zip(panels.flat, titles, strict=True):
        axes.set_title(title)
        if axes is not length:
            axes.set_ylim(bottom=0)
    budget.legend()
    return figure


def _head(series: Series) -> Figure:
    figure, axes = plt.subplots(figsize=(5, 3.2), layout="constrained")
    for precision, colour in (("fp32", LIGHT), ("int8", DARK)):
        points = []
        for name in contestants(series, "head", "rate"):
            if name.startswith(precision):
                size = name.partition(", ")[2]
                latents, classes = map(int, size.split(" x "))
                rate = Spread.of(series[f"head/{name}/rate"]).median
                points.append((latents * classes, 1000 / rate, size))
        points.sort()
        across, up = [point[0] for point in points], [point[1] for point in points]
        axes.plot(across, up, marker="o", color=colour, label=precision)
        for x, y, size in points:
            axes.annotate(size, (x, y), (0, 6), textcoords="offset points", ha="center")
    axes.set(xlabel="L · C of the head", ylabel="milliseconds a sentence", ylim=(0, None))
    axes.set_title("What the head costs")
    axes.margins(x=0.12)
    axes.legend(loc="lower right")
    return figure


def _memory(series: Series) -> Figure:
    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    seconds, megabytes = (series[f"{WHO}/watched/{what}"] for what in ("s", "MB"))
    axes.plot(seconds, megabytes, color=DARK)
    axes.axhline(series[f"{WHO}/idle/MB"][0], color=GREY, linestyle="--")
    axes.text(seconds[-1], series[f"{WHO}/idle/MB"][0], "when ready ", va="bottom", ha="right")
    requests = series[f"{WHO}/after/requests"][0]
    axes.set(xlabel="seconds", ylabel="resident memory, MB", ylim=(0, max(megabytes) * 1.15))
    axes.set_title(f"{WHO}, {requests:,.0f} mixed requests")
    return figure


def _kernels(series: Series) -> Figure:
    names = workloads(series)
    figure, axes = plt.subplots(figsize=(7, 0.42 * len(names) + 1.2), layout="constrained")
    places = range(len(names))
    for who, colour, shift in (("naive", GREY, -0.2), ("ours", DARK, 0.2)):
        spreads = [Spread.of(series[f"{name}/{who}/ms"]) for name in names]
        heights = [spread.median for spread in spreads]
        axes.barh([p + shift for p in places], heights, 0.38, color=colour, label=who)
        for place, spread in zip(places, spreads, strict=True):
            text = f" {spread.median:,.0f}" if spread.median >= 10 else f" {spread.median:.1f}"
            axes.text(spread.median, place + shift, text, va="center", fontsize=8)
    axes.set_yticks(list(places), names)
    axes.invert_yaxis()
    axes.set(
        xscale="log", xlabel="milliseconds (logarithmic)", title="Similarity of 2,000 sentences"
    )
    axes.margins(x=0.12)
    axes.legend(loc="lower right")
    return figure


def _lines(
    axes: Axes, series: Series, workload: str, measure: str, across: str, upward: str
) -> None:
    """Either precision against the number in the contestants' names."""
    for precision, colour in (("fp32", LIGHT), ("int8", DARK)):
        names = [n for n in contestants(series, workload, measure) if n.startswith(precision)]
        x = [int(name.partition(", ")[2].split()[0]) for name in names]
        spreads = [Spread.of(series[f"{workload}/{name}/{measure}"]) for name in names]
        axes.errorbar(
            x,
            [spread.median for spread in spreads],
            yerr=_ends(spreads),
            marker="o",
            markersize=4,
            color=colour,
            label=precision,
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(x, [str(value) for value in x])
    axes.minorticks_off()
    axes.set(xlabel=across, ylabel=upward)


def _ends(spreads: Sequence[Spread]) -> list[list[float]]:
    """How far the rounds reach below and above their medians."""
    return [[s.median - s.low for s in spreads], [s.high - s.median for s in spreads]]


def _colour(name: str) -> str:
    if name == "infinity" or "torch" in name or "sentence-transformers" in name:
        return GREY
    return DARK if "int8" in name else LIGHT


_PICTURES: dict[str, tuple[str, Callable[[Series], Figure]]] = {
    "throughput": ("throughput", _throughput),
    "latency": ("latency", _latency),
    "load": ("load", _load),
    "scaling": ("scaling", _scaling),
    "head": ("scaling", _head),
    "memory": ("memory", _memory),
    "kernels": ("kernels", _kernels),
}
