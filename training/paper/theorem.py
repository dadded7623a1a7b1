"""The paper's Theorem 1 on four words: two bags of token vectors with equal means.

`python -m training.paper.theorem OUT.svg` draws the figure of docs/method.md and prints its table.
"""

import sys
from pathlib import Path
from typing import NamedTuple, get_args

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.special import softmax

from lattemix.similarity import similarity
from model_store import Metric
from training.evaluate.tables import Table
from training.plots import panels

Floats = NDArray[np.float64]

# One coordinate per attribute: the country, and whether the word names its capital. In word vectors
# learned from text, such analogies hold approximately.
WORDS = {"Paris": (-1.0, 2.0), "Italy": (1.0, 0.0), "Rome": (1.0, 2.0), "France": (-1.0, 0.0)}
BAGS = (("Paris", "Italy"), ("Rome", "France"))
METRICS: tuple[Metric, ...] = tuple(m for m in get_args(Metric) if m != "centred")  # no centre here
TEMPERATURES = np.geomspace(0.1, 30, 60)

_COLOURS = ("tab:blue", "tab:orange")
_PANEL_WIDTH = 2.6  # inches: text stays readable where a page shows the figure 800 pixels wide


class Encoder(NamedTuple):
    """A linear layer: the logits of `weight` @ vector + `bias`."""

    weight: Floats  # [L, C, H]
    bias: Floats  # [L, C]

    def distributions(self, vectors: Floats, temperature: float = 1.0) -> Floats:
        """Latent distributions of tokens: [T, H] -> [T, L, C]."""
        logits = np.einsum("lch,th->tlc", self.weight, vectors) + self.bias
        shares: Floats = softmax(logits / temperature, axis=-1)
        return shares

    def mixture(self, vectors: Floats, temperature: float = 1.0) -> Floats:
        """Mean of the tokens' distributions: [T, H] -> [L, C]."""
        return self.distributions(vectors, temperature).mean(axis=0)

    def score(self, metric: Metric, temperature: float = 1.0) -> float:
        """Similarity of the mixtures of the two bags."""
        a, b = (self.mixture(bag, temperature)[None].astype(np.float32) for bag in vectors())
        return float(similarity(metric, a, b)[0])


def vectors() -> tuple[Floats, Floats]:
    """Token vectors of the two bags: [2, 2] each."""
    a, b = (np.array([WORDS[word] for word in bag]) for bag in BAGS)
    return a, b


def _encoder(*dims: list[tuple[float, float]]) -> Encoder:
    """An encoder whose classes are directions from (0, 1), the mean of all words."""
    weight = np.array(dims)
    return Encoder(weight, -weight @ np.array([0.0, 1.0]))


# One latent dim with a class for each word, and one latent dim for each attribute.
WORD_CLASSES = _encoder([(-1, 1), (1, -1), (1, 1), (-1, -1)])
ATTRIBUTES = _encoder([(-1, 0), (1, 0)], [(0, 1), (0, -1)])
ENCODERS = {"a class per word": WORD_CLASSES, "a dim per attribute": ATTRIBUTES}


def mean_pooling_cosine() -> float:
    """Cosine of the two mean vectors."""
    a, b = (bag.mean(axis=0) for bag in vectors())
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def table() -> Table:
    """Similarity of the two bags by every metric, at temperature 1."""
    rows = [["mean pooling", f"{mean_pooling_cosine():.2f}", *[""] * (len(METRICS) - 1)]]
    for name, encoder in ENCODERS.items():
        rows.append([f"mixture, {name}", *(f"{encoder.score(metric):.2f}" for metric in METRICS)])
    return Table("Similarity of the two bags", METRICS, rows)


def draw(path: Path) -> None:
    """Write the figure: tokens, mixtures, and similarity by temperature."""
    titles = ["Equal means", "Different mixtures", "Similarity by temperature"]
    with panels(path, titles, _PANEL_WIDTH) as (tokens, mixtures, curves):
        _draw_tokens(tokens)
        _draw_mixtures(mixtures)
        _draw_curves(curves)


def _draw_tokens(axis: Axes) -> None:
    for words, bag, colour in zip(BAGS, vectors(), _COLOURS, strict=True):
        axis.plot(*bag.T, marker="o", color=colour, linestyle="--", linewidth=0.8)
        for word, (x, y) in zip(words, bag, strict=True):
            above = y > 1  # away from the lines
            offset, align = ((0, 7), "bottom") if above else ((0, -7), "top")
            axis.annotate(word, (x, y), offset, textcoords="offset points", ha="center", va=align)
        axis.plot(*bag.mean(axis=0), marker="*", markersize=12, color="k")
    axis.annotate("both means", (0, 1), (12, -3), textcoords="offset points")
    axis.margins(0.25)
    axis.set_xticks([-1, 0, 1])
    axis.set_yticks([0, 1, 2])
    axis.set_xlabel("country")
    axis.set_ylabel("capital")


def _draw_mixtures(axis: Axes) -> None:
    places = np.arange(len(WORDS))
    for index, (words, bag) in enumerate(zip(BAGS, vectors(), strict=True)):
        heights = WORD_CLASSES.mixture(bag)[0]
        shift = (index - 0.5) * 0.4
        axis.bar(places + shift, heights, 0.4, color=_COLOURS[index], label=" + ".join(words))
    axis.set_xticks(places, [str(place + 1) for place in places])
    axis.set_xlabel("class")
    axis.set_ylabel("probability")
    axis.set_ylim(0, 0.6)
    axis.legend(loc="upper center")


def _draw_curves(axis: Axes) -> None:
    axis.axhline(mean_pooling_cosine(), color="k", linestyle=":", label="mean pooling, cosine")
    for (name, encoder), style in zip(ENCODERS.items(), ("-", "--"), strict=True):
        scores = [encoder.score("js", temperature) for temperature in TEMPERATURES]
        axis.plot(TEMPERATURES, scores, style, color="tab:green", label=f"{name}, js")
    axis.set_xscale("log")
    axis.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    axis.set_xlabel("temperature")
    axis.set_ylabel("similarity")
    axis.set_ylim(0, 1.55)  # leave space for the legend
    axis.set_yticks(np.linspace(0, 1, 6))
    axis.legend(loc="upper left")


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
    print(table().markdown)
