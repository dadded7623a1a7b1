"""Sentence similarity benchmarks, read from a folder, a file or the Hugging Face hub."""

import gzip
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from model_store import LatteMixError

STSB = {"stsb-train": "sts-train.csv", "stsb-dev": "sts-dev.csv", "stsb": "sts-test.csv"}
YEARS = {f"sts{year}": f"STS{year}-en-test" for year in range(12, 17)}
SMT = "sts13-smt"  # STS13 with its SMT subset, which is usually excluded
SICK = {"sick-r": "SICK_test_annotated.txt"}
TEST_SETS = (*YEARS, *SICK, "stsb")
KNOWN = (*STSB, SMT, *YEARS, *SICK)
DEVELOPMENT = {"stsb-train", "stsb-dev"}  # for choosing settings; the others for reporting

HUB = Path("hub")  # as --data
_HUB_FIELDS = ("score", "sentence1", "sentence2")
_HUB_SETS = {  # repository and split, as MTEB publishes them: STS13 has no SMT
    **{name: (f"mteb/{name}-sts", "test") for name in YEARS},
    "sick-r": ("mteb/sickr-sts", "test"),
    "stsb": ("mteb/stsbenchmark-sts", "test"),
    "stsb-dev": ("mteb/stsbenchmark-sts", "validation"),
    "stsb-train": ("mteb/stsbenchmark-sts", "train"),
}

# Files in a folder of benchmarks, and the column indices of their sentences.
_LAYOUT = {
    "STS1?-en-test/STS.input.*.txt": (0, 1),
    "stsbenchmark/sts-*.csv": (5, 6),
    "SICK/SICK_*.txt": (1, 2),
}

_MIN_PAIRS = 3
_NAMED_LINES = 5  # lines that a note names before it only counts them

Rows = Iterable[tuple[int, list[str]]]  # line numbers and columns
Columns = tuple[int, int, int]  # indices of the score and the two sentences


@dataclass(frozen=True)
class Pairs:
    """Pairs of sentences with human similarity scores."""

    name: str
    a: list[str] = field(default_factory=list)
    b: list[str] = field(default_factory=list)
    gold: list[float] = field(default_factory=list)
    subsets: list[str] = field(default_factory=list)  # the subset of each pair
    left_out: list[str] = field(default_factory=list)  # notes on unusable rows and files

    def __len__(self) -> int:
        return len(self.gold)

    @property
    def sentences(self) -> list[str]:
        """The distinct sentences, sorted."""
        return sorted({*self.a, *self.b})


def read_sets(data: Sequence[Path], names: Sequence[str]) -> tuple[list[Pairs], list[str]]:
    """Read sets by name from folders and the hub, and every file as a set of its own.

    Sets that cannot be read are left out.

    Returns:
        The sets, and notes on what was left out.
    """
    sets: dict[str, Pairs] = {}
    left_out = []
    for name, reader in (entry for path in data for entry in _readers(path, names)):
        if name in sets:
            left_out.append(f"{name}: another set has this name; rename the file.")
            continue
        try:
            sets[name] = reader()
        except LatteMixError as error:
            left_out.append(f"{name}: {error}")
    if not sets:
        raise LatteMixError("No set could be read. " + " ".join(left_out))
    return [*sets.values()], left_out + [n for pairs in sets.values() for n in pairs.left_out]


def _readers(path: Path, names: Sequence[str]) -> Iterator[tuple[str, Callable[[], Pairs]]]:
    """Yield the name of each set at a path, and a function that reads it."""
    if path.is_dir():
        yield from ((name, partial(read, path, name)) for name in names)
    elif path == HUB and not path.exists():
        yield from ((name, partial(_read_hub, name)) for name in names)
    else:
        yield _file_name(path), partial(read_file, path)


def read(folder: Path, name: str) -> Pairs:
    """Read a benchmark by its short name from a folder of benchmarks."""
    if name in STSB:
        return read_file(_existing(folder, f"stsbenchmark/{STSB[name]}"), name)
    if name in YEARS:
        return _read_year(_existing(folder, YEARS[name]), name, skip="SMT")
    if name == SMT:
        return _read_year(_existing(folder, YEARS["sts13"]), name)
    if name in SICK:
        path = _existing(folder, f"SICK/{SICK[name]}")
        return _read_rows(name, path, _lines(path)[1:], (3, 1, 2))
    raise LatteMixError(f"There is no set {name!r}: choose among {', '.join(KNOWN)}.")


def all_sentences(folder: Path) -> Iterator[str]:
    """Yield every sentence of a folder of benchmarks: all subsets and splits, rated or not."""
    files = [(path, cols) for glob, cols in _LAYOUT.items() for path in sorted(folder.glob(glob))]
    if not files:
        raise LatteMixError(
            f"{folder} has no evaluation sets: expected files such as {', '.join(_LAYOUT)}."
        )
    for path, columns in files:
        for _, row in _lines(path):
            yield from (row[column] for column in columns if column < len(row))


def read_file(path: Path, name: str | None = None) -> Pairs:
    """Read tab-separated pairs: `score, a, b`, or an `sts-*.csv`, which has them in columns 5-7."""
    rows = _lines(path)
    width = len(rows[0][1])
    if width < 3 or 3 < width < 7:
        raise LatteMixError(
            f"{path}, line 1: expected three tab-separated columns, score and two sentences, or "
            f"the seven of an sts-*.csv; there are {width}."
        )
    if rows[0][1][0].strip().casefold() == "score":
        rows = rows[1:]  # a header
    return _read_rows(name or _file_name(path), path, rows, (4, 5, 6) if width >= 7 else (0, 1, 2))


def _file_name(path: Path) -> str:
    """The name of the set in a file; those of STSb are recognised."""
    return {file: name for name, file in STSB.items()}.get(path.name, path.stem)


def _read_year(directory: Path, name: str, skip: str | None = None) -> Pairs:
    """Read all subsets of a year; their scores are in separate files."""
    pairs = Pairs(name)
    for path in sorted(directory.glob("STS.input.*.txt")):
        subset = path.name.removeprefix("STS.input.").removesuffix(".txt")
        if subset == skip:
            continue
        gold = directory / f"STS.gs.{subset}.txt"
        try:
            sentences, scores = _lines(path), _lines(gold)
        except LatteMixError as error:
            pairs.left_out.append(f"{name}: {error}")
            continue
        if len(sentences) != len(scores):
            counts = f"{len(sentences):,} lines, but {gold.name} has {len(scores):,}"
            pairs.left_out.append(f"{name}: {path} has {counts}.")
            continue
        rows = ((n, [*score, *row]) for (n, row), (_, score) in zip(sentences, scores, strict=True))
        _add_rows(pairs, path, rows, (0, 1, 2), subset)
    return _checked(pairs, directory)


def _read_hub(name: str) -> Pairs:
    """Download a set, or take it from the hub client's cache."""
    if name not in _HUB_SETS:
        raise LatteMixError(f"The hub has no {name!r}: choose among {', '.join(_HUB_SETS)}.")
    from huggingface_hub import snapshot_download

    repository, split = _HUB_SETS[name]
    patterns = [f"*{split}*.{kind}" for kind in ("jsonl", "jsonl.gz", "parquet")]
    try:
        folder = snapshot_download(repository, repo_type="dataset", allow_patterns=patterns)
    except Exception as error:  # the client has no common base class for its errors
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise LatteMixError(f"Cannot fetch {repository} from the hub: {reason}") from error
    files = sorted(path for pattern in patterns for path in Path(folder).rglob(pattern))
    if not files:
        raise LatteMixError(f"{repository} on the hub has no file of its {split} split.")
    values = [[row.get(key) for key in _HUB_FIELDS] for path in files for row in _hub_rows(path)]
    rows = [["" if value is None else str(value) for value in row] for row in values]
    return _read_rows(name, files[0], enumerate(rows, start=1), (0, 1, 2))


def _hub_rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        from pyarrow import parquet

        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return rows
    open_file = gzip.open if path.suffix == ".gz" else open
    with open_file(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _read_rows(name: str, path: Path, rows: Rows, columns: Columns) -> Pairs:
    pairs = Pairs(name)
    _add_rows(pairs, path, rows, columns)
    return _checked(pairs, path)


def _add_rows(pairs: Pairs, path: Path, rows: Rows, columns: Columns, subset: str = "") -> None:
    """Append the usable rows; note the line numbers of the others."""
    score, a, b = columns
    problems: dict[str, list[int]] = {}
    for number, row in rows:
        if problem := _problem(row, columns):
            problems.setdefault(problem, []).append(number)
            continue
        pairs.gold.append(float(row[score]))
        pairs.a.append(row[a])
        pairs.b.append(row[b])
        pairs.subsets.append(subset)
    for problem, numbers in problems.items():
        lines = (
            f"line{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:_NAMED_LINES]))}"
        )
        if (more := len(numbers) - _NAMED_LINES) > 0:
            lines += f" and {more:,} more"
        pairs.left_out.append(f"{pairs.name}: {path}, {lines}: {problem}.")


def _problem(row: Sequence[str], columns: Columns) -> str | None:
    if len(row) <= max(columns):
        numbers = "{}, {} and {}".format(*(column + 1 for column in columns))
        return f"expected a score and two sentences in columns {numbers}"
    score, a, b = (row[column].strip() for column in columns)
    if not score:
        return "no score"
    try:
        if not math.isfinite(float(score)):
            return "a score that is not finite"
    except ValueError:
        return "a score that is not a number"
    return None if a and b else "an empty sentence"


def _checked(pairs: Pairs, path: Path) -> Pairs:
    if len(pairs) < _MIN_PAIRS:
        reasons = " ".join(pairs.left_out) or "There are no other rows."
        raise LatteMixError(f"{path} has {len(pairs)} usable pairs. {reasons}")
    if len(set(pairs.gold)) == 1:
        raise LatteMixError(f"{path} gives all pairs the same score: no correlation is defined.")
    return pairs


def _existing(folder: Path, relative: str) -> Path:
    path = folder / relative
    if not path.exists():
        raise LatteMixError(f"{folder} has no {relative}.")
    return path


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """Line numbers and tab-separated columns; not the csv module, since quotes are text here."""
    lines = read_text(path).rstrip("\n").split("\n")
    return [(number, line.rstrip("\r").split("\t")) for number, line in enumerate(lines, start=1)]


def read_text(path: Path) -> str:
    """Read a UTF-8 file, with or without byte order mark."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise LatteMixError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise LatteMixError(f"{path} is not UTF-8 text: {error}.") from error
