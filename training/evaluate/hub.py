"""The benchmarks by name from the hub, for whoever has no folder of them."""

import gzip
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from model_store import LatteMixError
from training.evaluate.sets import Pairs, Reader, readers_of, usable_pairs

HUB = Path("hub")  # as --data

# In the form MTEB publishes them. STS13 has no SMT.
_FIELDS = ("score", "sentence1", "sentence2")
_REPOSITORIES = {
    **{f"sts{year}": (f"mteb/sts{year}-sts", "test") for year in range(12, 17)},
    "sick-r": ("mteb/sickr-sts", "test"),
    "stsb": ("mteb/stsbenchmark-sts", "test"),
    "stsb-dev": ("mteb/stsbenchmark-sts", "validation"),
    "stsb-train": ("mteb/stsbenchmark-sts", "train"),
}


def readers(data: Sequence[Path], names: Sequence[str]) -> Iterator[Reader]:
    """How to get the sets in folders, files and, for a `hub` that is neither, on the hub."""
    for path in data:
        if path == HUB and not path.exists():
            yield from ((name, partial(read, name)) for name in names)
        else:
            yield from readers_of(path, names)


def read(name: str) -> Pairs:
    """Fetch one set, or find it in the hub's own cache."""
    if name not in _REPOSITORIES:
        raise LatteMixError(f"The hub has no {name!r}: choose among {', '.join(_REPOSITORIES)}.")
    repository, split = _REPOSITORIES[name]
    files = _fetch(repository, split)
    values = [[row.get(field) for field in _FIELDS] for path in files for row in _rows(path)]
    columns = [["" if value is None else str(value) for value in row] for row in values]
    return usable_pairs(name, files[0], enumerate(columns, start=1), 0, 1, 2)


def _fetch(repository: str, split: str) -> list[Path]:
    from huggingface_hub import snapshot_download

    patterns = [f"*{split}*.{kind}" for kind in ("jsonl", "jsonl.gz", "parquet")]
    try:
        folder = snapshot_download(repository, repo_type="dataset", allow_patterns=patterns)
    except Exception as error:  # the hub client raises a family of errors for one fact
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise LatteMixError(f"Cannot fetch {repository} from the hub: {reason}") from error
    files = sorted(path for pattern in patterns for path in Path(folder).rglob(pattern))
    if not files:
        raise LatteMixError(f"{repository} on the hub has no file of its {split} split.")
    return files


def _rows(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        from pyarrow import parquet

        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return rows
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
