"""The tables of the paper, one CSV each, and our results beside them.

Li et al., "Latte-Mix: Measuring Sentence Semantic Similarity with Latent Categorical Mixtures"
(2020). A row holds the paper's name of the method, then how to reproduce it: the backbone, its
layer, the settings that differ from the paper's defaults, aggregation and metric.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from model_store import LatteMixError
from training.evaluate.report import AVERAGE, MIXTURE, POOLING, RANDOM, Method
from training.evaluate.statistics import spearman
from training.evaluate.tables import Record, SeedMean, Table

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

# Sources of the paper's backbones.
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

AGREEMENT = "order of the rows: rank correlation with the paper's, x100"
_MIN_ROWS = 3  # for a rank correlation


@dataclass(frozen=True)
class Row:
    """One row of a table."""

    name: str  # in the paper's words
    backbone: str
    layer: int | None  # None: the last
    settings: Mapping[str, str | int | float]
    method: Method | None  # None in tables of word benchmarks
    figures: Mapping[str, SeedMean]  # by set; `53.9` or `53.9±0.51` in the CSV

    @property
    def is_trained(self) -> bool:
        """Whether a head has to be trained for this row."""
        return self.method is not None and self.method[0] == MIXTURE


@dataclass(frozen=True)
class PublishedTable:
    """One table of the paper."""

    name: str
    sets: tuple[str, ...]
    rows: tuple[Row, ...]

    @classmethod
    def load(cls, name: str) -> "PublishedTable":
        """Read a table by its name."""
        if name not in TITLES:
            raise LatteMixError(f"There is no table {name!r}: choose among {', '.join(TITLES)}.")
        path = Path(__file__).parent / f"{name}.csv"
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            sets = tuple(c for c in reader.fieldnames or () if c not in _DESCRIPTION)
            return cls(name, sets, tuple(_row(record, sets) for record in reader))

    @property
    def backbones(self) -> list[str]:
        """The paper's names of the backbones."""
        return list(dict.fromkeys(row.backbone for row in self.rows))

    @property
    def is_of_words(self) -> bool:
        """Whether the table has word benchmarks, not sentence sets."""
        return all(row.method is None for row in self.rows)


def controls(row: Row) -> list[Method]:
    """What a trained row must be compared with: the centred mean, and an untrained encoder."""
    if row.method is None or not row.is_trained:
        return []
    return [(POOLING, "centred mean"), (RANDOM, row.method[1])]


def _control_name(row: Row, control: Method) -> str:
    if control[0] == RANDOM:
        return f"{row.name}, untrained encoder"
    layer = "" if row.layer is None else f", Layer {row.layer}"
    return f"{row.backbone}{layer} + Centred mean + Cosine"


def _row(record: Mapping[str, str], sets: tuple[str, ...]) -> Row:
    layer, metric = record.get("layer"), record.get("metric")
    return Row(
        name=record["method"],
        backbone=record["backbone"],
        layer=int(layer) if layer else None,
        settings={k: kind(record[k]) for k, kind in _SETTINGS.items() if record.get(k)},
        method=(record["aggregation"], metric) if metric else None,
        figures={name: SeedMean(*map(float, record[name].split("±"))) for name in sets},
    )


@dataclass(frozen=True)
class Comparison:
    """Our values by row and set, one per seed, beside the paper's figures."""

    table: PublishedTable
    sources: Mapping[str, str]  # of the backbones
    left_out: list[str] = field(default_factory=list)
    values: dict[tuple[str, str], list[float]] = field(default_factory=dict)  # by row name and set
    controls: dict[str, dict[str, list[float]]] = field(default_factory=dict)  # by name and set

    def add(self, row: Row, benchmark: str, values: Sequence[float]) -> None:
        """Add the values of a row on a set."""
        self.values[row.name, benchmark] = list(values)

    def add_control(
        self, row: Row, control: Method, benchmark: str, values: Sequence[float]
    ) -> None:
        """Add the values of a control of a row on a set; rows may share a control."""
        if values:
            self.controls.setdefault(_control_name(row, control), {})[benchmark] = list(values)

    def ours(self, row: Row, benchmark: str) -> SeedMean | None:
        """Our figure; an average only if the row has values on all sets."""
        values = self.values.get((row.name, benchmark), [])
        if benchmark == AVERAGE:
            by_set = [self.values.get((row.name, name), []) for name in self.sets]
            if not all(by_set):
                return None
            values = [float(np.mean(seed)) for seed in zip(*by_set, strict=True)]
        return SeedMean.of(values) if values else None

    def paper(self, row: Row, benchmark: str) -> SeedMean:
        """The paper's figure."""
        if benchmark != AVERAGE:
            return row.figures[benchmark]
        return SeedMean(float(np.mean([row.figures[name].mean for name in self.sets])))

    @property
    def rows(self) -> list[Row]:
        """The rows that were reproduced."""
        names = {name for name, _ in self.values}
        return [row for row in self.table.rows if row.name in names]

    @property
    def sets(self) -> list[str]:
        """The sets that were reproduced."""
        names = {name for _, name in self.values}
        return [name for name in self.table.sets if name in names]

    @property
    def columns(self) -> list[str]:
        """The sets, and their average if they are several sentence sets."""
        averaged = len(self.sets) > 1 and not self.table.is_of_words
        return self.sets + [AVERAGE] * averaged

    def tables(self) -> list[Table]:
        """`ours / the paper's`, and the agreement of the two rankings of rows."""
        rows = []
        for row in self.rows:
            source = self.sources[row.backbone].rstrip("/").rsplit("/", 1)[-1]
            cells = [f"{self.ours(row, c) or 'none'} / {self.paper(row, c)}" for c in self.columns]
            rows.append([f"{row.name} ({source})", *cells])
        if len(rows) >= _MIN_ROWS:
            rows.append([AGREEMENT, *map(self._agreement, self.columns)])
        tables = [Table(f"{TITLES[self.table.name]}: ours / the paper's", self.columns, rows)]
        if self.controls:
            tables.append(Table("Controls", self.columns, [*map(self._control_row, self.controls)]))
        return tables

    def _control_row(self, name: str) -> list[str]:
        by_set = [self.controls[name].get(benchmark, []) for benchmark in self.sets]
        cells = [str(SeedMean.of(values)) if values else "none" for values in by_set]
        if AVERAGE in self.columns:
            averages = [float(np.mean(seed)) for seed in zip(*by_set, strict=True)]
            cells.append(str(SeedMean.of(averages)) if averages else "none")
        return [name, *cells]

    def records(self) -> list[Record]:
        """Our figures and the paper's."""
        return [
            {
                "table": self.table.name,
                "method": row.name,
                "backbone": row.backbone,
                "source": self.sources[row.backbone],
                "layer": row.layer,
                "set": name,
                "seeds": len(self.values.get((row.name, name), [])) or None,
                "mean": ours.mean,
                "deviation": ours.deviation,
                "paper_mean": self.paper(row, name).mean,
                "paper_deviation": self.paper(row, name).deviation,
            }
            for row in self.rows
            for name in self.columns
            if (ours := self.ours(row, name))
        ]

    def _agreement(self, benchmark: str) -> str:
        means = [
            (ours.mean, self.paper(row, benchmark).mean)
            for row in self.rows
            if (ours := self.ours(row, benchmark))
        ]
        return f"{spearman(*np.array(means).T):.0f}" if len(means) >= _MIN_ROWS else "none"
