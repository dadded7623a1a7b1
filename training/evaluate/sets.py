"""The public benchmarks of sentence similarity, in the layouts they are passed around in."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from model_store import LatteMixError

# Development sets are for choosing, the others for reporting.
STSB = {"stsb-train": "sts-train.csv", "stsb-dev": "sts-dev.csv", "stsb": "sts-test.csv"}
YEARS = {f"sts{year}": f"STS{year}-en-test" for year in range(12, 17)}
SMT = "sts13-smt"  # STS13 with its SMT part, as some papers count it and the headline does not
SICK = {"sick-r": "SICK_test_annotated.txt"}
ALL = (*YEARS, *SICK, "stsb")
KNOWN = (*STSB, SMT, *YEARS, *SICK)
DEVELOPMENT = {"stsb-train", "stsb-dev"}

_FEWEST = 3  # pairs that a correlation needs to say anything
_NAMED = 5  # lines that a problem names before it only counts them

Rows = Iterable[tuple[int, list[str]]]  # line numbers and columns


@dataclass(frozen=True)
class Pairs:
    """Two lists of sentences, and how alike people found each two."""

    name: str
    a: list[str] = field(default_factory=list)
    b: list[str] = field(default_factory=list)
    gold: list[float] = field(default_factory=list)
    subsets: list[str] = field(default_factory=list)  # the part of the set that each pair is in
    left_out: list[str] = field(default_factory=list)  # what could not be used, and why

    def __len__(self) -> int:
        return len(self.gold)

    @property
    def sentences(self) -> list[str]:
        """All of them, each once."""
        return sorted({*self.a, *self.b})


Reader = tuple[str, Callable[[], Pairs]]  # a set's name, and how to get it


def read_sets(data: Sequence[Path], names: Sequence[str]) -> tuple[list[Pairs], list[str]]:
    """Read sets by name from the folders in `data`, and every file in it as a set of its own.

    Returns:
        The sets, and what was left out.
    """
    return collect([reader for path in data for reader in readers_of(path, names)])


def readers_of(path: Path, names: Sequence[str]) -> list[Reader]:
    """How to get the sets of a folder by name, or the one that a file is."""
    if path.is_dir():
        return [(name, partial(read, path, name)) for name in names]
    return [(_name(path), partial(read_file, path))]


def collect(readers: Sequence[Reader]) -> tuple[list[Pairs], list[str]]:
    """Read every set that can be had; one that cannot does not keep the others from it."""
    found: list[Pairs] = []
    left_out = []
    for name, reader in readers:
        if name in {pairs.name for pairs in found}:
            left_out.append(f"{name}: there is a set of that name already; rename the file.")
            continue
        try:
            found.append(reader())
        except LatteMixError as error:
            left_out.append(f"{name}: {error}")
    if not found:
        raise LatteMixError("There is nothing to evaluate on. " + " ".join(left_out))
    return found, left_out + [note for pairs in found for note in pairs.left_out]


def read(folder: Path, name: str) -> Pairs:
    """Read one benchmark from a folder that holds them, by its short name."""
    if name in STSB:
        return read_file(_find(folder, f"stsbenchmark/{STSB[name]}"), name)
    if name in YEARS:
        return _read_year(_find(folder, YEARS[name]), name, skip=("SMT",))
    if name == SMT:
        return _read_year(_find(folder, YEARS["sts13"]), name)
    if name in SICK:
        return _read_sick(_find(folder, f"SICK/{SICK[name]}"), name)
    raise LatteMixError(f"There is no set {name!r}: choose among {', '.join(KNOWN)}.")


def read_file(path: Path, name: str | None = None) -> Pairs:
    """Read tab-separated pairs: `score, a, b`, or an `sts-*.csv`, where they are columns 5 to 7."""
    rows = _rows(path)
    width = len(rows[0][1]) if rows else 0
    places = (4, 5, 6) if width >= 7 else (0, 1, 2)
    if rows and rows[0][1][0].strip().casefold() == "score":
        rows = rows[1:]  # a header
    if 0 < width < 3 or 3 < width < 7:
        raise LatteMixError(
            f"{path}, line 1: expected three tab-separated columns, score and two sentences, or "
            f"the seven of an sts-*.csv; there are {width}."
        )
    return usable_pairs(name or _name(path), path, rows, *places)


def _name(path: Path) -> str:
    """Of the set in a file: STSb's own are known by their file names."""
    return {file: name for name, file in STSB.items()}.get(path.name, path.stem)


def usable_pairs(name: str, path: Path, rows: Rows, score: int, a: int, b: int) -> Pairs:
    """The pairs in the rows of one file, by the places of their columns; refused if too few."""
    return _usable(_pairs(name, path, rows, score, a, b), path)


def _read_sick(path: Path, name: str) -> Pairs:
    return usable_pairs(name, path, _rows(path)[1:], 3, 1, 2)


def _read_year(directory: Path, name: str, skip: Sequence[str] = ()) -> Pairs:
    """Every subset's pairs, with scores from the file beside them."""
    year = Pairs(name)
    for path in sorted(directory.glob("STS.input.*.txt")):
        subset = path.name.removeprefix("STS.input.").removesuffix(".txt")
        if subset in skip:
            continue
        scores = directory / f"STS.gs.{subset}.txt"
        try:
            sentences, gold = _rows(path), _rows(scores)
        except LatteMixError as error:
            year.left_out.append(f"{name}: {error}")
            continue
        if len(sentences) != len(gold):
            year.left_out.append(
                f"{name}: {path} has {len(sentences):,} lines, but {scores.name} has {len(gold):,}."
            )
            continue
        rows = [(n, [*score, *row]) for (n, row), (_, score) in zip(sentences, gold, strict=True)]
        found = _pairs(name, path, rows, 0, 1, 2, subset)
        for mine, theirs in zip(_columns(year), _columns(found), strict=True):
            mine.extend(theirs)
    return _usable(year, directory)


def _columns(pairs: Pairs) -> tuple[list, ...]:  # type: ignore[type-arg]
    return pairs.a, pairs.b, pairs.gold, pairs.subsets, pairs.left_out


def _usable(pairs: Pairs, path: Path) -> Pairs:
    if len(pairs) < _FEWEST:
        reasons = " ".join(pairs.left_out) or "Nothing else is in it."
        raise LatteMixError(f"{path} has {len(pairs)} usable pairs. {reasons}")
    if len(set(pairs.gold)) == 1:
        raise LatteMixError(f"{path} scores all pairs alike, so there is nothing to agree with.")
    return pairs


def _find(folder: Path, relative: str) -> Path:
    path = folder / relative
    if not path.exists():
        raise LatteMixError(f"{folder} has no {relative}.")
    return path


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """Line numbers and tab-separated columns; quotes are text here, so not the csv module."""
    try:
        # Not splitlines: a sentence may hold other characters that count as line ends there.
        lines = path.read_text(encoding="utf-8-sig").rstrip("\n").split("\n")
    except OSError as error:
        raise LatteMixError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise LatteMixError(f"{path} is not UTF-8 text: {error}.") from error
    return [(number, line.rstrip("\r").split("\t")) for number, line in enumerate(lines, start=1)]


def _pairs(
    name: str, path: Path, rows: Rows, score: int, a: int, b: int, subset: str = ""
) -> Pairs:
    """The rows that have a score and two sentences; of the others, which lines they are."""
    pairs = Pairs(name)
    problems: dict[str, list[int]] = {}
    for number, columns in rows:
        if problem := _problem(columns, score, a, b):
            problems.setdefault(problem, []).append(number)
            continue
        pairs.gold.append(float(columns[score]))
        pairs.a.append(columns[a])
        pairs.b.append(columns[b])
        pairs.subsets.append(subset)
    pairs.left_out.extend(
        f"{name}: {path}, {_lines(numbers)}: {problem}." for problem, numbers in problems.items()
    )
    return pairs


def _problem(columns: Sequence[str], score: int, a: int, b: int) -> str | None:
    if len(columns) <= max(score, a, b):
        return f"expected a score and two sentences in columns {score + 1}, {a + 1} and {b + 1}"
    if not columns[score].strip():
        return "no score"
    try:
        if not math.isfinite(float(columns[score])):
            return "a score that is not finite"
    except ValueError:
        return "a score that is not a number"
    return None if columns[a].strip() and columns[b].strip() else "an empty sentence"


def _lines(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:_NAMED]))
    more = len(numbers) - _NAMED
    return f"line{'s' if len(numbers) > 1 else ''} {named}" + (f" and {more:,} more" * (more > 0))
