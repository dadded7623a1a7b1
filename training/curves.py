"""Pictures of a run: how its figures moved, and how its head uses its latent dims."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from lattemix.build.head import Floats, HeadSpec
from training.monitor import Entry
from training.panels import WIDTH, panels

Log = Sequence[Entry]

_MARKED = 30  # points that are few enough to be seen one by one
_BINS = 30


@dataclass(frozen=True)
class Picture:
    """One panel: its title, how to read it, what can be read in it, and how it is drawn."""

    title: str
    note: str
    words: str
    draw: Callable[[Axes], None]
    is_wide: bool = False

    def png(self) -> bytes:
        """By itself."""
        file = BytesIO()
        with panels(file, [self.title], WIDTH * (1 + self.is_wide)) as [axis]:
            self.draw(axis)
        return file.getvalue()


def pictures(log: Log, spec: HeadSpec, usage: Floats | None, pooled: float | None) -> list[Picture]:
    """What there is to show of a run.

    Args:
        log: its entries.
        spec: of its head.
        usage: how much each class is used, [L, C], of a categorical head.
        pooled: mean pooling's dev score, to compare with.
    """
    found = [
        Picture(
            "Loss, in nats per token",
            "Reconstruction and beta times the KL: it may rise as long as beta does.",
            _told(log, "loss"),
            partial(_loss, log),
        )
    ]
    found += _of_latent(log, spec) if _has(log, "kl_per_dim") else []
    if _has(log, "dev"):
        note = "On the pairs of --dev, in every tenth of the run."
        drawing = partial(_dev, log, pooled)
        found.append(Picture("Dev score, Spearman x100", note, _told(log, "dev"), drawing))
    if usage is not None:
        note = "The mean mixture of many sentences. A dim with one bright class always says that."
        words = f"The share of a class is between {usage.min():.3f} and {usage.max():.3f}."
        drawing = partial(_usage, usage)
        found.append(Picture("How much each class is used", note, words, drawing, is_wide=True))
    return found


def _of_latent(log: Log, spec: HeadSpec) -> list[Picture]:
    free_bits, dims = spec.recipe["free_bits"], spec.latent_dims
    found = [
        Picture(
            "KL, and its weight beta",
            "How far the latent dims are from their prior, in all.",
            _told(log, "kl"),
            partial(_kl, log),
        ),
        Picture(
            "KL of each latent dim",
            "The middle 50 % and 90 % of the dims. Below free_bits it costs nothing.",
            _told_dims(log),
            partial(_kl_band, log, free_bits),
        ),
        Picture(
            "KL of each latent dim, at the end",
            "In the last batch. A dim near 0 says nothing.",
            _told_dims(log),
            partial(_kl_histogram, log, free_bits),
        ),
        Picture(
            "Latent dims in use",
            "Those that say something about their token.",
            _told(log, "dims_in_use"),
            partial(_dims, log, dims),
        ),
    ]
    if spec.model == "categorical":
        note = "Perplexity of a dim's classes over a batch, the mean of the dims."
        drawing = partial(_classes, log, spec.classes)
        found.append(Picture("Classes in use", note, _told(log, "classes_in_use"), drawing))
    return found


def draw(drawn: Sequence[Picture], path: Path) -> None:
    """All of them in one file."""
    with panels(path, [picture.title for picture in drawn]) as axes:
        for axis, picture in zip(axes, drawn, strict=True):
            picture.draw(axis)


def _loss(log: Log, axis: Axes) -> None:
    _curve(axis, log, "loss", "tab:blue")
    _curve(axis, log, "reconstruction", "tab:orange", linestyle="--")
    _legend(axis)


def _kl(log: Log, axis: Axes) -> None:
    _curve(axis, log, "kl", "tab:blue")
    axis.set_ylabel("KL, nats per token")
    weight = axis.twinx()
    _curve(weight, log, "beta", "tab:orange", linestyle="--")
    weight.set_ylabel("beta (dashed)")
    weight.set_ylim(-0.05, 1.05)
    weight.spines["right"].set_visible(True)


def _kl_band(log: Log, free_bits: float, axis: Axes) -> None:
    steps, values = _series(log, "kl_per_dim")  # [E], [E, L]
    quantiles = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95], axis=1)  # [5, E]
    axis.fill_between(steps, quantiles[0], quantiles[4], color="tab:blue", alpha=0.2, label="90 %")
    axis.fill_between(steps, quantiles[1], quantiles[3], color="tab:blue", alpha=0.4, label="50 %")
    axis.plot(steps, quantiles[2], color="tab:blue", label="median")
    _level(axis, free_bits, "free_bits")
    axis.set_xlabel("step")
    axis.set_ylabel("nats")
    axis.set_ylim(bottom=0)
    _legend(axis)


def _dims(log: Log, dims: int, axis: Axes) -> None:
    _curve(axis, log, "dims_in_use", "tab:blue")
    _level(axis, dims / 2, "half: below, it collapses")
    axis.set_ylim(0, dims * 1.05)
    _legend(axis)


def _classes(log: Log, classes: int, axis: Axes) -> None:
    _curve(axis, log, "classes_in_use", "tab:blue")
    _level(axis, classes, "all of them")
    axis.set_ylim(0, classes * 1.15)
    _legend(axis)


def _dev(log: Log, pooled: float | None, axis: Axes) -> None:
    _curve(axis, log, "dev", "tab:blue", label="mixtures")
    if pooled is not None:
        _level(axis, pooled, "mean pooling")
    _legend(axis)


def _kl_histogram(log: Log, free_bits: float, axis: Axes) -> None:
    axis.hist(_series(log, "kl_per_dim")[1][-1], bins=_BINS, color="tab:blue")
    axis.axvline(free_bits, color="tab:orange", linestyle="--")
    axis.set_xlabel("nats (dashed: free_bits)")
    axis.set_xlim(left=0)
    axis.set_ylabel("latent dims")


def _usage(usage: Floats, axis: Axes) -> None:
    image = axis.imshow(usage.T, aspect="auto", cmap="viridis", vmin=0, interpolation="nearest")
    axis.set_xlabel("latent dim")
    axis.set_ylabel("class")
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.figure.colorbar(image, ax=axis, label="share")


def _curve(
    axis: Axes, log: Log, name: str, colour: str, linestyle: str = "-", label: str | None = None
) -> None:
    steps, values = _series(log, name)
    marker = "." if len(steps) < _MARKED else None
    axis.plot(steps, values, linestyle, color=colour, marker=marker, label=label or name)
    axis.set_xlabel("step")


def _level(axis: Axes, value: float, label: str) -> None:
    axis.axhline(value, color="tab:orange", linestyle="--", label=label)


def _legend(axis: Axes) -> None:
    axis.legend(frameon=True, framealpha=0.8, edgecolor="none")  # readable on what it covers


def _has(log: Log, name: str) -> bool:
    return any(entry.get(name) is not None for entry in log)


def _series(log: Log, name: str) -> tuple[Floats, Floats]:
    """The steps [E] at which a figure was taken, and its values [E, *]."""
    entries = [entry for entry in log if entry.get(name) is not None]
    steps, values = ([entry[key] for entry in entries] for key in ("step", name))
    return np.array(steps, np.float32), np.array(values, np.float32)


def _told(log: Log, name: str) -> str:
    steps, values = _series(log, name)
    first, last = (f"{values[i]:.1f} at step {steps[i]:.0f}" for i in (0, -1))
    return f"{name}: {first}, {last}."


def _told_dims(log: Log) -> str:
    low, middle, high = np.quantile(_series(log, "kl_per_dim")[1][-1], [0.05, 0.5, 0.95])
    return f"At the end 90 % are from {low:.2f} to {high:.2f} nats, the median is {middle:.2f}."
