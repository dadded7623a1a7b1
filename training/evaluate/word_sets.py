"""The public benchmarks of words, in the layouts they are passed around in."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_store import LatteMixError

Pair = tuple[str, str]
Rows = list[list[str]]


@dataclass(frozen=True)
class Similarity:
    """Pairs of words, and how alike people found each two."""

    name: str
    pairs: list[Pair]
    gold: list[float]


@dataclass(frozen=True)
class Analogies:
    """Questions of four words: a is to b as c is to the last, which is the answer."""

    name: str
    questions: list[tuple[str, str, str, str]]


@dataclass(frozen=True)
class Relation:
    """Example pairs of one relation, and other pairs, those people found most typical first."""

    examples: list[Pair]
    ranked: list[Pair]


@dataclass(frozen=True)
class Relations:
    """Relations whose pairs are to be ranked by how typical they are."""

    name: str
    relations: list[Relation]


@dataclass(frozen=True)
class Categories:
    """Words, and the category of each."""

    name: str
    words: list[str]
    categories: list[str]


WordBenchmark = Similarity | Analogies | Relations | Categories


def _similarity(name: str, rows: Rows) -> Similarity:
    return Similarity(name, [(a, b) for a, b, _ in rows], [float(score) for _, _, score in rows])


def _analogies(name: str, rows: Rows) -> Analogies:
    return Analogies(name, [(a, b, c, answer) for _, a, b, c, answer in rows])


def _relations(name: str, rows: Rows) -> Relations:
    """Every ranked pair comes once with each example of its relation.

    The file keeps the order of the gold ratings, best first, but not the ratings.
    """
    found: dict[str, tuple[dict[Pair, None], dict[Pair, None]]] = {}  # dicts as ordered sets
    for relation, a, b, c, d in rows:
        examples, ranked = found.setdefault(relation, ({}, {}))
        examples[a, b] = ranked[c, d] = None
    return Relations(name, [Relation([*first], [*second]) for first, second in found.values()])


def _categories(name: str, rows: Rows) -> Categories:
    return Categories(name, [word for _, word in rows], [category for category, _ in rows])


_FOUR = ("type", "word1", "word2", "word3", "target")

# Name -> file, what to make of its rows, and its named columns; without these it has tabs instead
# of commas, no header, and two words and a score in a row.
_FILES: dict[str, tuple[str, Callable[[str, Rows], WordBenchmark], tuple[str, ...]]] = {
    "simlex999": ("EN-SIMLEX-999.txt", _similarity, ()),
    "men": ("EN-MEN-TR-3k.txt", _similarity, ()),
    "ws353": ("EN-WS-353-ALL.txt", _similarity, ()),
    "rw": ("EN-RW-STANFORD.txt", _similarity, ()),
    "google": ("analogy-google-analogies.csv", _analogies, _FOUR),
    "msr": ("analogy-msr.csv", _analogies, _FOUR),
    "semeval2012_2": ("analogy-semeval.csv", _relations, _FOUR),
    "ap": ("categorization-ap.csv", _categories, ("category", "word")),
    "bless": ("categorization-bless.csv", _categories, ("category", "word")),
}


def read_benchmarks(directory: Path, tell: Callable[[str], None]) -> list[WordBenchmark]:
    """Read the word benchmarks in a folder; `tell` hears, in sentences, what is left out."""
    benchmarks: list[WordBenchmark] = []
    for name, (file, make, columns) in _FILES.items():
        try:
            benchmarks.append(make(name, _rows(directory / file, columns, tell)))
        except LatteMixError as error:
            tell(f"{error} So {name} is left out.")
    if not benchmarks:
        files = ", ".join(file for file, _, _ in _FILES.values())
        raise LatteMixError(f"{directory} holds no word benchmark: expected some of {files}.")
    return benchmarks


def _rows(path: Path, columns: Sequence[str], tell: Callable[[str], None]) -> Rows:
    """The cells of the named columns, or of all three, in every row that can be understood."""
    separator, lines = "," if columns else "\t", _lines(path)
    places, width, first = [0, 1, 2], 3, 1
    if columns:
        header, first = [cell.strip() for cell in lines.pop(0).split(separator)], 2
        if not {*columns} <= {*header}:
            raise LatteMixError(f"{path}, line 1: expected columns named {', '.join(columns)}.")
        places, width = [header.index(column) for column in columns], len(header)
    rows, bad = [], []
    for number, line in enumerate(lines, start=first):
        cells = [cell.strip() for cell in line.split(separator)]
        row = [cells[place] for place in places] if len(cells) == width else [""]
        if all(row) and (columns or _is_number(row[2])):
            rows.append(row)
        else:
            bad.append(number)
    if bad:
        wanted = ", ".join(columns) or "two words and a score"
        others = f", with {len(bad) - 1:,} more like it" if bad[1:] else ""
        tell(f"{path}, line {bad[0]:,}: expected {wanted}; it is left out{others}.")
    if len(rows) < 2:  # neither ranked nor grouped
        raise LatteMixError(f"{path} holds fewer than two rows to measure with.")
    return rows


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except OSError as error:
        raise LatteMixError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise LatteMixError(f"{path} is not UTF-8 text: {error}.") from error


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
