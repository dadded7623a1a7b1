"""The paper's figures: how results change with the layer that is read."""

from pathlib import Path

import numpy as np

from training.panels import panels
from training.paper.comparison import Comparison
from training.paper.published import Row


def draw_layers(comparison: Comparison, path: Path) -> None:
    """A curve for every method over its layers, and the paper's beside it, for every set."""
    methods: dict[str, list[Row]] = {}
    for row in comparison.rows:
        if row.layer is not None:
            kind = " ".join(row.way) if row.way else "first component"
            methods.setdefault(kind, []).append(row)
    if not methods:
        return
    with panels(path, comparison.columns) as axes:
        for axis, name in zip(axes, comparison.columns, strict=True):
            for number, (method, rows) in enumerate(methods.items()):
                layers = np.array([row.layer for row in rows])
                ours = [comparison.ours(row, name) for row in rows]
                means = np.array([figure.mean if figure else np.nan for figure in ours])
                spread = np.array([(figure and figure.deviation) or 0 for figure in ours])
                theirs = [comparison.theirs(row, name).mean for row in rows]
                colour = f"C{number}"
                axis.plot(layers, means, color=colour, marker="o", markersize=3, label=method)
                axis.fill_between(layers, means - spread, means + spread, color=colour, alpha=0.2)
                axis.plot(layers, theirs, color=colour, linestyle=":", label=f"{method} (paper)")
            axis.set_xlabel("layer")
        axes[0].legend(fontsize="small")
