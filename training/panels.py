"""Axes with titles, a few in a row: what every picture of ours is drawn on."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from typing import Any, BinaryIO

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

_STYLE: dict[Any, Any] = {  # matplotlib spells out the keys it takes
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": "medium",
    "font.size": 9,
    "legend.frameon": False,
}
WIDTH, _HEIGHT = 3.2, 2.9  # of a panel, in inches
_PER_ROW = 4


@contextmanager
def panels(
    file: Path | BinaryIO, titles: Sequence[str], width: float = WIDTH
) -> Iterator[list[Axes]]:
    """Axes with titles, a few in a row; written to `file` at the end, as a PNG."""
    rows, columns = ceil(len(titles) / _PER_ROW), min(len(titles), _PER_ROW)
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width * columns, _HEIGHT * rows), layout="constrained")
        axes = list(figure.subplots(rows, columns, squeeze=False).flat)
        for axis, title in zip(axes, titles, strict=False):
            axis.set_title(title)
        for axis in axes[len(titles) :]:
            axis.remove()
        yield axes[: len(titles)]
        if isinstance(file, Path):
            file.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(file, dpi=150, format="png")
