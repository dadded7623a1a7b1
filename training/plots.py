"""Every plot: the curves of a training run, evaluation results, scores by layer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import product
from math import ceil
from pathlib import Path
from typing import Any, BinaryIO

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lattemix.build.head import Floats, HeadSpec
from training.evaluate.report import MEAN_POOLING, Method, Report
from training.evaluate.statistics import spearman
from training.monitor import Entry
from training.paper.published import Comparison, Row

Log = Sequence[Entry]

_STYLE: dict[Any, Any] = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "font.size": 9,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text, not outlines: a third of the size
    "svg.hashsalt": "lattemix",
}
_WIDTH, _HEIGHT = 3.2, 2.9  # of a panel, in inches
_COLUMNS = 4
_MAX_MARKERS = 30  # more points are drawn as a line only


@contextmanager
def panels(
    file: Path | BinaryIO, titles: Sequence[str], width: float = _WIDTH
) -> Iterator[list[Axes]]:
    """Yield axes, one for each title, in rows of four; write them as a PNG, or an SVG by suffix."""
    rows, columns = ceil(len(titles) / _COLUMNS), min(len(titles), _COLUMNS)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width * columns, _HEIGHT * rows), layout="constrained")
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axis, title in zip(axes, titles, strict=False):
            axis.set_title(title)
        for axis in axes[len(titles) :]:
            axis.remove()
        yield axes[: len(titles)]
        is_svg = isinstance(file, Path) and file.suffix == ".svg"
        if isinstance(file, Path):
            file.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if is_svg else None  # the same bytes whenever it is drawn
        figure.savefig(file, dpi=150, format="svg" if is_svg else "png", metadata=metadata)


@dataclass(frozen=True)
class Plot:
    """One panel of a report; `summary` is its text alternative."""

    title: str
    caption: str
    summary: str
    draw: Callable[[Axes], None]
    is_wide: bool = False

    def png(self) -> bytes:
        """Render this panel alone."""
        file = BytesIO()
        with panels(file, [self.title], _WIDTH * (1 + self.is_wide)) as [axis]:
            self.draw(axis)
        return file.getvalue()


def draw_plots(plots: Sequence[Plot], path: Path) -> None:
    """Write all panels into one PNG."""
    with panels(path, [plot.title for plot in plots]) as axes:
        for axis, plot in zip(axes, plots, strict=True):
            plot.draw(axis)


def run_plots(
    log: Log, spec: HeadSpec, usage: Floats | None, mean_pooling: float | None
) -> list[Plot]:
    """The plots of a training run; see `training.report.write_report`."""
    free_bits, dims, classes = spec.recipe["free_bits"], spec.latent_dims, spec.classes
    plots: list[Plot] = []
    level: tuple[str, float | None, str, float | None]  # curve, reference, its label, top

    def add(name: str, title: str, caption: str, draw: Callable[..., None], *options: Any) -> None:
        if any(entry.get(name) is not None for entry in log):
            drawing = partial(draw, log, *options)
            plots.append(Plot(title, caption, _summary(log, name), drawing))

    caption = "Reconstruction plus beta times KL. It may rise while beta does."
    add("loss", "Loss, in nats per token", caption, _draw_loss)
    caption = "Divergence from the prior, summed over the latent dims."
    add("kl_per_dim", "KL, and its weight beta", caption, _draw_kl)
    caption = "The middle 50 % and 90 % of the dims. KL below free_bits is not penalised."
    add("kl_per_dim", "KL per latent dim", caption, _draw_kl_quantiles, free_bits)
    caption = "In the last batch. A dim near 0 carries no information."
    add("kl_per_dim", "KL per latent dim, at the end", caption, _draw_kl_histogram, free_bits)
    caption = "Dims that carry information about their token."
    level = ("dims_in_use", dims / 2, "collapse: below half", dims * 1.05)
    add("dims_in_use", "Latent dims in use", caption, _draw_level, *level)
    caption = "Perplexity of a dim's classes over a batch, mean over the dims."
    level = ("classes_in_use", classes, "all classes", classes * 1.15)
    add("classes_in_use", "Classes in use", caption, _draw_level, *level)
    caption = "On the pairs of --dev, in every tenth of the run."
    level = ("dev", mean_pooling, "mean pooling", None)
    add("dev", "Dev score, Spearman x100", caption, _draw_level, *level)
    if usage is not None:
        caption = (
            "Mean mixture of many sentences. A dim with one bright class is always that class."
        )
        summary = f"The share of a class is between {usage.min():.3f} and {usage.max():.3f}."
        plots.append(Plot("Class usage", caption, summary, partial(_draw_usage, usage), True))
    return plots


def _draw_loss(log: Log, axis: Axes) -> None:
    _draw_curve(axis, log, "loss")
    _draw_curve(axis, log, "reconstruction", "tab:orange", "--")
    _draw_legend(axis)


def _draw_level(
    log: Log, name: str, level: float | None, label: str, top: float | None, axis: Axes
) -> None:
    """A curve and a horizontal line to compare it with."""
    _draw_curve(axis, log, name)
    if level is not None:
        axis.axhline(level, color="tab:orange", linestyle="--", label=label)
    if top is not None:
        axis.set_ylim(0, top)
    _draw_legend(axis)


def _draw_kl(log: Log, axis: Axes) -> None:
    _draw_curve(axis, log, "kl")
    axis.set_ylabel("KL, nats per token")
    weight = axis.twinx()
    _draw_curve(weight, log, "beta", "tab:orange", "--")
    weight.set_ylabel("beta (dashed)")
    weight.set_ylim(-0.05, 1.05)
    weight.spines["right"].set_visible(True)


def _draw_kl_quantiles(log: Log, free_bits: float, axis: Axes) -> None:
    steps, values = _series(log, "kl_per_dim")  # [E], [E, L]
    quantiles = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95], axis=1)  # [5, E]
    axis.fill_between(steps, quantiles[0], quantiles[4], color="tab:blue", alpha=0.2, label="90 %")
    axis.fill_between(steps, quantiles[1], quantiles[3], color="tab:blue", alpha=0.4, label="50 %")
    axis.plot(steps, quantiles[2], color="tab:blue", label="median")
    axis.axhline(free_bits, color="tab:orange", linestyle="--", label="free_bits")
    axis.set_xlabel("step")
    axis.set_ylabel("nats")
    axis.set_ylim(bottom=0)
    _draw_legend(axis)


def _draw_kl_histogram(log: Log, free_bits: float, axis: Axes) -> None:
    axis.hist(_series(log, "kl_per_dim")[1][-1], bins=30, color="tab:blue")
    axis.axvline(free_bits, color="tab:orange", linestyle="--")
    axis.set_xlabel("nats (dashed: free_bits)")
    axis.set_xlim(left=0)
    axis.set_ylabel("latent dims")


def _draw_usage(usage: Floats, axis: Axes) -> None:
    image = axis.imshow(usage.T, aspect="auto", cmap="viridis", vmin=0, interpolation="nearest")
    axis.set_xlabel("latent dim")
    axis.set_ylabel("class")
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.figure.colorbar(image, ax=axis, label="share")


def _draw_curve(
    axis: Axes, log: Log, name: str, colour: str = "tab:blue", style: str = "-"
) -> None:
    steps, values = _series(log, name)
    marker = "." if len(steps) < _MAX_MARKERS else None
    axis.plot(steps, values, style, color=colour, marker=marker, label=name)
    axis.set_xlabel("step")


def _draw_legend(axis: Axes) -> None:
    axis.legend(frameon=True, framealpha=0.8, edgecolor="none")  # readable on top of curves


def _series(log: Log, name: str) -> tuple[Floats, Floats]:
    """The steps [E] that logged a figure, and its values [E, *]."""
    entries = [entry for entry in log if entry.get(name) is not None]
    steps, values = ([entry[key] for entry in entries] for key in ("step", name))
    return np.array(steps, np.float32), np.array(values, np.float32)


def _summary(log: Log, name: str) -> str:
    steps, values = _series(log, name)
    if values.ndim == 2:
        low, middle, high = np.quantile(values[-1], [0.05, 0.5, 0.95])
        return f"{name} at the end: 90 % from {low:.2f} to {high:.2f}, median {middle:.2f}."
    first, last = (f"{values[i]:.1f} at step {steps[i]:.0f}" for i in (0, -1))
    return f"{name}: {first}, {last}."


def draw_evaluation(report: Report, directory: Path) -> None:
    """Write `scatter.png`, and `differences.png` if there is something to compare."""
    _draw_scatter(report, directory / "scatter.png")
    methods = [method for method, control in report.compared() if control == MEAN_POOLING]
    if methods:
        _draw_differences(report, methods, directory / "differences.png")


def _draw_scatter(report: Report, path: Path) -> None:
    methods = [m for m in (MEAN_POOLING, report.recommended_method) if m and m in report.scores]
    shown = [*product(report.sets, methods)]
    titles = [f"{pairs.name}: {', '.join(method)}" for pairs, method in shown]
    with panels(path, titles) as axes:
        for axis, (pairs, method) in zip(axes, shown, strict=True):
            scores, gold = report.scores[method][pairs.name][0], np.array(pairs.gold)
            axis.scatter(gold, scores, s=4, alpha=0.25, linewidths=0)
            axis.set_xlabel("human score")
            axis.set_ylabel("similarity")
            label = f"Spearman {spearman(scores, gold):.1f}"
            axis.text(0.04, 0.96, label, transform=axis.transAxes, va="top")


def _draw_differences(report: Report, methods: Sequence[Method], path: Path) -> None:
    """Differences from mean pooling by set, with 95 % intervals; pale if not significant."""
    names = report.names
    with panels(path, [", ".join(method) for method in methods]) as axes:
        for axis in axes[1:]:
            axis.sharex(axes[0])  # before drawing: limits must cover every panel
        for axis, method in zip(axes, methods, strict=True):
            rows = [report.difference(method, MEAN_POOLING, name) for name in names]
            values, low, high = np.array(rows).T
            significant = (low > 0) | (high < 0)
            axis.barh(names, values, color=np.where(significant, "tab:blue", "lightsteelblue"))
            axis.errorbar(values, names, xerr=[values - low, high - values], fmt="none", ecolor="k")
            axis.axvline(0, color="k", linewidth=0.8)
            axis.invert_yaxis()
            axis.set_xlabel("Spearman x100 above mean pooling")


def draw_layers(comparison: Comparison, path: Path) -> None:
    """Write the scores of every method by layer, ours and the paper's, one panel per set."""
    curves: dict[str, list[Row]] = {}
    for row in comparison.rows:
        if row.layer is not None:
            label = " ".join(row.method) if row.method else "first component"
            curves.setdefault(label, []).append(row)
    if not curves:
        return
    with panels(path, comparison.columns) as axes:
        for axis, name in zip(axes, comparison.columns, strict=True):
            for number, (label, rows) in enumerate(curves.items()):
                layers = np.array([row.layer for row in rows])
                ours = [comparison.ours(row, name) for row in rows]
                means = np.array([figure.mean if figure else np.nan for figure in ours])
                spread = np.array([(figure and figure.deviation) or 0 for figure in ours])
                paper = [comparison.paper(row, name).mean for row in rows]
                colour = f"C{number}"
                axis.plot(layers, means, color=colour, marker="o", markersize=3, label=label)
                axis.fill_between(layers, means - spread, means + spread, color=colour, alpha=0.2)
                axis.plot(layers, paper, color=colour, linestyle=":", label=f"{label} (paper)")
            axis.set_xlabel("layer")
        axes[0].legend(fontsize="small")
