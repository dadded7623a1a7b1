"""`lattemix-train limits`: changed meanings beside paraphrases.

A triple holds a sentence, the same sentence with swapped roles, a negation or another number, and a
paraphrase. A similarity of meanings would score the paraphrase higher than the changed sentence.
"""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from model_store import LatteMixError
from training.evaluate.evaluation import Evaluation
from training.evaluate.report import MEAN_POOLING, MIXTURE, POOLING, SERVED, Method
from training.evaluate.sets import Pairs
from training.evaluate.statistics import Scores
from training.evaluate.tables import Record, Table

TRIPLES = Path(__file__).with_name("limits.csv")

_POOLINGS = {MEAN_POOLING, (POOLING, "weighted mean")}
_TIE = 1e-6  # scores that differ by less are equal up to rounding
_ALL = "all"


class Triple(NamedTuple):
    """A sentence, the same with another meaning, and a paraphrase."""

    kind: str  # of the change
    sentence: str
    changed: str
    paraphrase: str


class ScoredTriples(NamedTuple):
    """Similarities to the sentence, one per triple: [N] each."""

    changed: Scores
    paraphrase: Scores


def read_triples(path: Path = TRIPLES) -> list[Triple]:
    """Read a CSV file with the columns kind, sentence, changed and paraphrase."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            header, *rows = [*csv.reader(file)] or [[]]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise LatteMixError(f"Cannot read {path}: {error}.") from error
    if header != [*Triple._fields]:
        raise LatteMixError(f"{path}: the header must be {','.join(Triple._fields)}.")
    for number, row in enumerate(rows, start=1):
        if len(row) != len(header) or not all(map(str.strip, row)):
            raise LatteMixError(
                f"{path}, triple {number}: expected {len(header)} cells with text: {row}."
            )
    if not rows:
        raise LatteMixError(f"{path} has no triples.")
    return [Triple(*row) for row in rows]


@dataclass(frozen=True)
class LimitsReport:
    """Scores of triples by each method."""

    triples: Sequence[Triple]
    scores: Mapping[Method, ScoredTriples]
    left_out: list[str] = field(default_factory=list)

    @property
    def kinds(self) -> list[str]:
        """The kinds of change, and `all` if there are several."""
        kinds = list(dict.fromkeys(triple.kind for triple in self.triples))
        return kinds + [_ALL] * (len(kinds) > 1)

    def higher(self, method: Method, kind: str) -> tuple[int, int]:
        """Number of triples in which the paraphrase scores higher, and of all of this kind."""
        scores, mask = self.scores[method], self._mask(kind)
        return int((scores.paraphrase > scores.changed + _TIE)[mask].sum()), int(mask.sum())

    def means(self, method: Method, kind: str) -> tuple[float, float]:
        """Mean score of the changed sentences and of the paraphrases."""
        changed, paraphrase = (scores[self._mask(kind)].mean() for scores in self.scores[method])
        return float(changed), float(paraphrase)

    def tables(self) -> list[Table]:
        """Triples won by the paraphrase, and mean scores."""
        kinds = self.kinds
        counts = [
            [", ".join(method), *("{}/{}".format(*self.higher(method, kind)) for kind in kinds)]
            for method in self.scores
        ]
        means = [
            [", ".join(method), *("{:.3f} / {:.3f}".format(*self.means(method, k)) for k in kinds)]
            for method in self.scores
        ]
        return [
            Table("Triples in which the paraphrase scores higher", kinds, counts),
            Table("Mean score: changed sentence / paraphrase", kinds, means),
        ]

    def records(self) -> list[Record]:
        """Every figure, by method and kind."""
        records: list[Record] = []
        for method in self.scores:
            for kind in self.kinds:
                higher, triples = self.higher(method, kind)
                changed, paraphrase = self.means(method, kind)
                records.append(
                    {
                        "aggregation": method[0],
                        "metric": method[1],
                        "kind": kind,
                        "triples": triples,
                        "paraphrase_higher": higher,
                        "changed_mean": changed,
                        "paraphrase_mean": paraphrase,
                    }
                )
        return records

    def _mask(self, kind: str) -> NDArray[np.bool_]:
        """Whether each triple is of this kind: [N]."""
        return np.array([kind in (triple.kind, _ALL) for triple in self.triples])


def measure_limits(evaluation: Evaluation, triples: Sequence[Triple]) -> LimitsReport:
    """Score triples by mean pooling and by every metric of a model or head.

    Token weights, if the head has any, are applied to mean pooling too. A model is scored as
    served; of several heads, only the first is scored.
    """
    sentences = [triple.sentence for triple in triples]
    others = [*(t.changed for t in triples), *(t.paraphrase for t in triples)]
    pairs = Pairs("limits", sentences * 2, others, [0.0] * len(others), [""] * len(others))
    report = evaluation.run([pairs])
    aggregation = SERVED if evaluation.model else MIXTURE
    scores = {}
    for method, sets in report.scores.items():
        if method in _POOLINGS or method[0] == aggregation:
            scores[method] = ScoredTriples(*np.split(sets[pairs.name][0], 2))
    return LimitsReport(triples, scores, report.left_out)
