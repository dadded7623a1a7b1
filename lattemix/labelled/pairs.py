"""Labelled pairs: sentence pairs with a label, 0 or 1, or a rating on a scale."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from lattemix.bulk.readers import RowFormat, Table
from model_store import LatteMixError
from model_store.calibration import Kind

Floats = NDArray[np.float64]
Scale = tuple[float, float]

BINARY: Scale = (0.0, 1.0)
DEFAULT_COLUMNS = (("a", "b"), ("sentence1", "sentence2"))
LABEL = "label"
MIN_PAIRS = 20
MIN_OF_A_CLASS = 5

_MAX_CONTRADICTIONS = 0.01  # share of the pairs: large sets have some

_WORDS = {"true": 1.0, "false": 0.0}  # booleans of JSON and Parquet


class LabelError(LatteMixError):
    """Labelled pairs cannot be used."""


@dataclass(frozen=True, kw_only=True)
class Labels:
    """The labels of pairs: 0 and 1, or ratings on a scale."""

    name: str  # of the file or field, in messages
    labels: Floats  # [N]
    scale: Scale

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def kind(self) -> Kind:
        """What a calibration on these labels returns."""
        return "probability" if self.is_binary else "rating"

    @cached_property
    def is_binary(self) -> bool:
        """Whether all labels are 0 or 1, on that scale."""
        return self.scale == BINARY and bool(np.isin(self.labels, BINARY).all())

    @property
    def targets(self) -> Floats:
        """Labels as numbers from 0 to 1: [N]."""
        low, high = self.scale
        return (self.labels - low) / (high - low)

    def check(self, minimum: int = MIN_PAIRS) -> Self:
        """Return self; raise `LabelError` if nothing can be learned from the labels."""
        if len(self) < minimum:
            raise LabelError(
                f"There are {len(self)} labels in {self.name}: at least {minimum} are needed."
            )
        if self.is_binary:
            matches = int(self.labels.sum())
            fewest = min(matches, len(self) - matches)
            if fewest < min(MIN_OF_A_CLASS, minimum):
                label = int(matches <= len(self) - matches)
                raise LabelError(
                    f"{fewest} of {len(self):,} labels in {self.name} are {label}: at least "
                    f"{MIN_OF_A_CLASS} are needed."
                )
        elif len(np.unique(self.labels)) == 1:
            raise LabelError(f"All labels in {self.name} are {self.labels[0]:g}.")
        return self


@dataclass(frozen=True, kw_only=True)
class LabelledPairs(Labels):
    """Pairs of sentences and their labels."""

    a: Sequence[str]
    b: Sequence[str]

    def take(self, indices: NDArray[np.intp]) -> "LabelledPairs":
        """Return the pairs at some indices."""
        a, b = ([texts[i] for i in indices] for texts in (self.a, self.b))
        return replace(self, a=a, b=b, labels=self.labels[indices])

    def check(self, minimum: int = MIN_PAIRS) -> Self:
        """As `Labels.check`, of distinct pairs; also reject over 1 % of contradictory labels."""
        pairs = dict.fromkeys(map(frozenset, zip(self.a, self.b, strict=True)))
        if len(pairs) < min(minimum, len(self)):
            raise LabelError(
                f"There are {len(pairs)} distinct pairs in {self.name}: at least {minimum} are "
                "needed."
            )
        super().check(minimum)
        if len(self.contradictions) > _MAX_CONTRADICTIONS * len(self):
            raise LabelError(f"{self.name}: {self.describe_contradictions()}: remove one of each.")
        return self

    @cached_property
    def contradictions(self) -> list[tuple[int, int]]:
        """Indices of equal pairs whose labels differ by more than half of the scale."""
        low, high = self.scale
        first: dict[frozenset[str], int] = {}
        found = []
        for row, pair in enumerate(zip(self.a, self.b, strict=True)):
            other = first.setdefault(frozenset(pair), row)
            if abs(self.labels[row] - self.labels[other]) > (high - low) / 2:
                found.append((other, row))
        return found

    def describe_contradictions(self) -> str:
        """Count the contradictory labels and name the first, for messages."""
        count, (one, other) = len(self.contradictions), self.contradictions[0]
        labels = f"{self.labels[one]:g} and {self.labels[other]:g}"
        rows = f"rows {one + 1:,} and {other + 1:,} are the same pair with labels {labels}"
        return rows if count == 1 else f"{count:,} labels contradict others; {rows}"


def read_labelled(
    path: Path, columns: Sequence[str] | None = None, scale: Scale | None = None
) -> LabelledPairs:
    """Read labelled pairs from CSV, TSV, JSON lines or Parquet.

    Args:
        path: the file.
        columns: names of the columns of both sentences and the label; default: a, b or sentence1,
            sentence2, and label.
        scale: lowest and highest label; default: 0 and 1, if there are no other labels.
    """
    if columns is not None and len({*columns}) != 3:
        raise LabelError(
            f"--columns {','.join(columns)}: name two columns of sentences and one of labels."
        )
    *names, label = columns or ("", LABEL)
    texts = (tuple(names),) if columns else DEFAULT_COLUMNS
    row_format = RowFormat("labelled pairs", texts, exact=columns is not None, kept=(label,))
    return labelled(str(path), Table(path, row_format), scale)


def labelled(name: str, rows: Iterable[Sequence[object]], scale: Scale | None) -> LabelledPairs:
    """Return labelled pairs from rows of two sentences and a label; check every row."""
    a, b, labels = [], [], []
    for number, (first, second, value) in enumerate(rows, 1):
        where = f"{name}, row {number:,}"
        for side, text in (("first", first), ("second", second)):
            if not isinstance(text, str) or not text.strip():
                raise LabelError(f"{where}: the {side} sentence is empty.")
        a.append(str(first))
        b.append(str(second))
        labels.append(_number(value, where))
    checked = check_labels(
        name, np.array(labels, np.float64), scale, lambda i: f"{name}, row {i + 1:,}"
    )
    return LabelledPairs(name=name, a=a, b=b, labels=checked.labels, scale=checked.scale)


def check_labels(
    name: str, labels: Floats, scale: Scale | None, locate: Callable[[int], str]
) -> Labels:
    """Return labels on a scale; raise `LabelError` for none, or one outside the scale.

    Args:
        name: of the file or field, in messages.
        labels: the labels: [N].
        scale: lowest and highest label; None: labels are 0 and 1.
        locate: returns the name of a label, by its index.
    """
    if not len(labels):
        raise LabelError(f"There are no labels in {name}.")
    low, high = scale or BINARY
    if not low < high:
        raise LabelError(f"scale is {low:g} to {high:g}: give the lowest and the highest label.")
    inside = (labels >= low) & (labels <= high) if scale else np.isin(labels, BINARY)
    if not inside.all():
        index = int(np.flatnonzero(~inside)[0])
        where = f"{locate(index)}: label {labels[index]:g}"
        if scale is None:
            raise LabelError(
                f"{where} is neither 0 nor 1: for ratings, give their scale (--scale LOW,HIGH, or "
                "scale in a request)."
            )
        raise LabelError(f"{where} is outside the scale from {low:g} to {high:g}.")
    return Labels(name=name, labels=labels, scale=(low, high))


def _number(value: object, where: str) -> float:
    text = "" if value is None else str(value).strip()
    try:
        number = _WORDS.get(text.lower())
        number = float(text) if number is None else number
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise LabelError(f"{where}: label {text[:40]!r} is not a number.")
    return number


def parse_scale(text: str | None) -> Scale | None:
    """Parse `LOW,HIGH`."""
    if text is None:
        return None
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise LabelError(f"--scale {text}: give the lowest and the highest label, as in 0,5.")
    return low, high
