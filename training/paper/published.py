"""The tables of the paper as they were published, one CSV each, and what each row is.

Li et al., "Latte-Mix: Measuring Sentence Semantic Similarity with Latent Categorical Mixtures"
(2020). A row names the method in the paper's words, then in ours: the backbone, its layer, the
settings in which the recipe differs from the paper's defaults, and the way of comparing.
"""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from model_store import LatteMixError
from training.evaluate.report import MIXTURE, Way

TITLES = {
    "pooling": "Poolings and Latte-Mix (Table 1)",
    "vae": "Autoencoder, Normal VAE and Categorical VAE (Table 2)",
    "finetuned": "Backbones finetuned on SNLI (Table 3)",
    "hyperparameters": "Hyperparameters of the VAEs (appendix)",
    "pooling-all": "Poolings and Latte-Mix on every STS task (appendix)",
    "finetuned-all": "Backbones finetuned on SNLI on every STS task (appendix)",
    "layers-base": "Layers of BERT-Base on every STS task (appendix, and the figure of layers)",
    "layers-large": "Layers of BERT-Large on every STS task (appendix)",
    "words-base": "Layers of BERT-Base on word benchmarks (appendix, and the figure of MSR)",
    "words-large": "Layers of BERT-Large on word benchmarks (appendix)",
}

# Where the paper's own backbones can be had.
SOURCES = {
    "GloVe": "glove.840B.300d.txt",
    "Skip-Gram": "GoogleNews-vectors-negative300.bin",
    "BERT-Base": "google-bert/bert-base-uncased",
    "BERT-Large": "google-bert/bert-large-uncased",
    "RoBERTa-Base": "FacebookAI/roberta-base",
    "RoBERTa-Large": "FacebookAI/roberta-large",
    "SBERT-Base": "sentence-transformers/bert-base-nli-mean-tokens",
    "SBERT-Large": "sentence-transformers/bert-large-nli-mean-tokens",
    "SRoBERTa-Base": "sentence-transformers/roberta-base-nli-mean-tokens",
    "SRoBERTa-Large": "sentence-transformers/roberta-large-nli-mean-tokens",
}

_SETTINGS = {
    "model": str,
    "encoder_layers": int,
    "latent_dims": int,
    "classes": int,
    "temperature": float,
}
_DESCRIPTION = ("method", "backbone", "layer", *_SETTINGS, "aggregation", "metric")


class Figure(NamedTuple):
    """One cell of a table; a deviation where several seeds were run."""

    mean: float
    deviation: float | None = None

    @classmethod
    def parse(cls, text: str) -> "Figure":
        """Read `53.9` or `53.9±0.51`."""
        mean, _, deviation = text.partition("±")
        return cls(float(mean), float(deviation) if deviation else None)

    def __str__(self) -> str:
        deviation = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{deviation}"


@dataclass(frozen=True)
class Row:
    """One method."""

    method: str
    backbone: str
    layer: int | None  # the last if unset
    settings: Mapping[str, str | int | float]
    way: Way | None  # none where words are compared
    figures: Mapping[str, Figure]  # by set

    @property
    def is_trained(self) -> bool:
        """Whether a VAE has to be trained for it."""
        return self.way is not None and self.way[0] == MIXTURE


@dataclass(frozen=True)
class PublishedTable:
    """One table."""

    name: str
    sets: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        """What it shows."""
        return TITLES[self.name]

    @property
    def backbones(self) -> list[str]:
        """The paper's names of those in it, each once."""
        return list(dict.fromkeys(row.backbone for row in self.rows))

    @property
    def is_of_words(self) -> bool:
        """Whether words are compared, not sentences."""
        return all(row.way is None for row in self.rows)

    @classmethod
    def load(cls, name: str) -> "PublishedTable":
        """Read one of the tables by its name."""
        if name not in TITLES:
            raise LatteMixError(f"There is no table {name!r}: choose among {', '.join(TITLES)}.")
        path = Path(__file__).parent / f"{name}.csv"
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            sets = tuple(c for c in reader.fieldnames or () if c not in _DESCRIPTION)
            return cls(name, sets, tuple(_row(record, sets) for record in reader))


def _row(record: Mapping[str, str], sets: tuple[str, ...]) -> Row:
    layer, metric = record.get("layer"), record.get("metric")
    return Row(
        method=record["method"],
        backbone=record["backbone"],
        layer=int(layer) if layer else None,
        settings={k: kind(record[k]) for k, kind in _SETTINGS.items() if record.get(k)},
        way=(record["aggregation"], metric) if metric else None,
        figures={name: Figure.parse(record[name]) for name in sets},
    )
