"""Triplets: an anchor, a sentence that is similar to it, and one that is less similar."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lattemix.bulk.readers import RowFormat, Table
from lattemix.labelled.pairs import MIN_PAIRS, LabelError

TRIPLET_COLUMNS = ("anchor", "positive", "negative")


@dataclass(frozen=True)
class Triplets:
    """Triplets of sentences."""

    name: str  # of the file, in messages
    anchors: Sequence[str]
    positives: Sequence[str]
    negatives: Sequence[str]

    def __len__(self) -> int:
        return len(self.anchors)

    def check(self, minimum: int = MIN_PAIRS) -> "Triplets":
        """Return self; raise `LabelError` if nothing can be learned from the triplets."""
        if len(self) < minimum:
            raise LabelError(f"{self.name} has {len(self)} triplets: collect at least {minimum}.")
        rows: dict[tuple[str, str, str], int] = {}
        for row, triplet in enumerate(
            zip(self.anchors, self.positives, self.negatives, strict=True)
        ):
            anchor, positive, negative = triplet
            if positive == negative:
                raise LabelError(
                    f"{self.name}, row {row + 1:,}: positive and negative are the same sentence."
                )
            rows[triplet] = row
            if (other := rows.get((anchor, negative, positive))) is not None:
                raise LabelError(
                    f"{self.name}: rows {other + 1:,} and {row + 1:,} contradict each other: "
                    "remove one."
                )
        return self


def read_triplets(path: Path) -> Triplets:
    """Read triplets from CSV, TSV, JSON lines or Parquet with anchor, positive and negative."""
    anchor, positive, negative = TRIPLET_COLUMNS
    row_format = RowFormat("triplets", ((anchor, positive),), kept=(negative,))
    return triplets(str(path), Table(path, row_format))


def triplets(name: str, rows: Iterable[Sequence[object]]) -> Triplets:
    """Return triplets from rows of three sentences; reject empty ones."""
    columns: tuple[list[str], ...] = ([], [], [])
    for number, row in enumerate(rows, 1):
        for column, text, kind in zip(columns, row, TRIPLET_COLUMNS, strict=True):
            if not isinstance(text, str) or not text.strip():
                raise LabelError(f"{name}, row {number:,}: the {kind} is empty.")
            column.append(text)
    if not columns[0]:
        raise LabelError(f"{name} has no triplets.")
    return Triplets(name, *columns)
