"""The public benchmarks of sentence similarity, in the layouts they are passed around in."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from model_store import LatteMixError

# Development sets are for choosing, the others for reporting.
STSB = {"stsb-train": "sts-train.csv", "stsb-dev": "sts-dev.csv", "stsb": "sts-test.csv"}
YEARS = {f"sts{year}": f"STS{year}-en-test" for year in range(12, 17)}
SICK = {"sick-r": "SICK_test_annotated.txt"}
ALL = (*YEARS, *SICK, "stsb")
DEVELOPMENT = {"stsb-train", "stsb-dev"}

_LEFT_OUT = {"sts13": ("SMT",)}  # as most papers do, since it cannot be had everywhere


@dataclass(frozen=True)
class Pairs:
    """Two lists of sentences, and how alike people found each two."""

    name: str
    a: list[str]
    b: list[str]
    gold: list[float]


def read(data: Path, name: str) -> Pairs:
    """Read one benchmark from a folder that holds them, by its short name."""
    if name in STSB:
        return read_stsb(_find(data, f"stsbenchmark/{STSB[name]}"), name)
    if name in YEARS:
        return _read_year(_find(data, YEARS[name]), name)
    if name in SICK:
        return _read_sick(_find(data, f"SICK/{SICK[name]}"), name)
    raise LatteMixError(f"There is no set {name!r}: choose among {', '.join((*STSB, *ALL[:-1]))}.")


def read_stsb(path: Path, name: str) -> Pairs:
    """Read an `sts-{train,dev,test}.csv`: tab-separated, score and sentences in columns 5 to 7."""
    return _pairs(name, path, _rows(path), score=4, a=5, b=6)


def _read_sick(path: Path, name: str) -> Pairs:
    rows = _rows(path)
    next(rows, None)  # the header
    return _pairs(name, path, rows, score=3, a=1, b=2)


def _read_year(directory: Path, name: str) -> Pairs:
    """Every subset's pairs, with scores from the file beside them; a pair may have none."""
    pairs = Pairs(name, [], [], [])
    for path in sorted(directory.glob("STS.input.*.txt")):
        subset = path.name.removeprefix("STS.input.").removesuffix(".txt")
        if subset in _LEFT_OUT.get(name, ()):
            continue
        scores = directory / f"STS.gs.{subset}.txt"
        sentences, gold = list(_rows(path)), list(_rows(scores))
        if len(sentences) != len(gold):
            raise LatteMixError(
                f"{path} has {len(sentences):,} lines, but {scores.name} has {len(gold):,}."
            )
        joined = ((n, [*row, *score]) for (n, row), (_, score) in zip(sentences, gold, strict=True))
        found = _pairs(name, path, ((n, row) for n, row in joined if row[-1]), score=-1, a=0, b=1)
        pairs.a.extend(found.a)
        pairs.b.extend(found.b)
        pairs.gold.extend(found.gold)
    if not pairs.gold:
        raise LatteMixError(f"{directory} holds no STS.input.*.txt with their STS.gs.*.txt.")
    return pairs


def _find(data: Path, relative: str) -> Path:
    path = data / relative
    if not path.exists():
        raise LatteMixError(f"{data} has no {relative}: leave that set out of --sets, or add it.")
    return path


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and tab-separated columns; quotes are text here, so not the csv module."""
    try:
        # Not splitlines: a sentence may hold other characters that count as line ends there.
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except OSError as error:
        raise LatteMixError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise LatteMixError(f"{path} is not UTF-8 text: {error}.") from error
    return ((number, line.rstrip("\r").split("\t")) for number, line in enumerate(lines, start=1))


def _pairs(
    name: str, path: Path, rows: Iterator[tuple[int, list[str]]], score: int, a: int, b: int
) -> Pairs:
    pairs = Pairs(name, [], [], [])
    for number, columns in rows:
        try:
            values = float(columns[score]), columns[a], columns[b]
        except (IndexError, ValueError):
            raise LatteMixError(
                f"{path}, line {number}: expected a score and two sentences in columns "
                f"{score + 1}, {a + 1} and {b + 1}."
            ) from None
        pairs.gold.append(values[0])
        pairs.a.append(values[1])
        pairs.b.append(values[2])
    return pairs
