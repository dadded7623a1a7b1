"""Labelled sentence pairs of SNLI and MultiNLI."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from training.corpus import CorpusError
from training.exclusion import Exclusion
from training.readers import as_text, read_objects

LABELS = ("contradiction", "entailment", "neutral")
_NO_LABEL = "-"  # the annotators did not agree
_FIELDS = ("gold_label", "sentence1", "sentence2")


class Pair(NamedTuple):
    """A labelled pair of sentences."""

    premise: str
    hypothesis: str
    label: int  # index in LABELS


@dataclass(frozen=True)
class NliCorpus:
    """The pairs of an NLI corpus, and the number of those left out."""

    pairs: list[Pair]
    unlabelled: int
    excluded: int

    @classmethod
    def read(
        cls, path: Path, exclusion: Exclusion | None = None, limit: int | None = None
    ) -> "NliCorpus":
        """Read JSON lines of SNLI or MultiNLI.

        Args:
            path: the file, `.jsonl` or `.jsonl.gz`.
            exclusion: sentences whose pairs to drop.
            limit: maximum number of pairs, from the start of the file.
        """
        pairs: list[Pair] = []
        unlabelled = excluded = 0
        for number, record in read_objects(path):
            if len(pairs) == limit:
                break
            label, premise, hypothesis = _fields(record, path, number)
            if label == _NO_LABEL:
                unlabelled += 1
            elif exclusion and (premise in exclusion or hypothesis in exclusion):
                excluded += 1
            else:
                pairs.append(Pair(premise, hypothesis, LABELS.index(label)))
        return cls(pairs, unlabelled, excluded)

    def __str__(self) -> str:
        return (
            f"{len(self.pairs):,} labelled pairs; {self.unlabelled:,} without a gold label and "
            f"{self.excluded:,} with an evaluation sentence were dropped."
        )


def _fields(record: dict[str, Any], path: Path, number: int) -> list[str]:
    if missing := [name for name in _FIELDS if name not in record]:
        raise CorpusError(
            f"{path}, line {number:,} has no {missing[0]}: expected {', '.join(_FIELDS)}."
        )
    values = [as_text(record[name], path, number) for name in _FIELDS]
    if values[0] not in (*LABELS, _NO_LABEL):
        raise CorpusError(
            f"{path}, line {number:,} has the gold_label {values[0]!r}, which is not one of "
            f"{', '.join(LABELS)} and {_NO_LABEL}."
        )
    return values
