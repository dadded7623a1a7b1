"""The benchmarks by name from the hub, for whoever has no folder of them."""

import gzip
import json
import re
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from model_store import LatteMixError
from training.evaluate.sets import Pairs, collect, usable_pairs

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


def meant(data: Sequence[Path]) -> bool:
    """Whether `--data hub` was given, and there is no folder of that name."""
    return list(data) == [HUB] and not HUB.exists()


def read_sets(names: Sequence[str]) -> tuple[list[Pairs], list[str]]:
    """Fetch sets by name; return them, and what was left out."""
    return collect([(name, partial(read, name)) for name in names])


def read(name: str) -> Pairs:
    """Fetch one set, or find it in the hub's own cache."""
    if name not in _REPOSITORIES:
        raise LatteMixError(f"The hub has no {name!r}: choose among {', '.join(_REPOSITORIES)}.")
    repository, split = _REPOSITORIES[name]
    path = _fetch(repository, split)
    fields = [
        [row.get(name) for name in ("score", "sentence1", "sentence2")] for row in _rows(path)
    ]
    columns = [["" if value is None else str(value) for value in row] for row in fields]
    return usable_pairs(name, path, enumerate(columns, start=1), 0, 1, 2)


def _fetch(repository: str, split: str) -> Path:
    from huggingface_hub import HfApi, hf_hub_download

    try:
        files = HfApi().list_repo_files(repository, repo_type="dataset")
        wanted = re.compile(rf"(.*/)?{split}[^/]*\.(jsonl|jsonl\.gz|parquet)")
        matching = sorted(file for file in files if wanted.fullmatch(file))
        if not matching:
            raise LatteMixError(f"{repository} on the hub has no file of its {split} split.")
        return Path(hf_hub_download(repository, matching[0], repo_type="dataset"))
    except LatteMixError:
        raise
    except Exception as error:  # the hub client raises a family of errors for one fact
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise LatteMixError(f"Cannot fetch {repository} from the hub: {reason}") from error


def _rows(path: Path) -> Iterable[dict[str, Any]]:
    if path.suffix == ".parquet":
        from pyarrow import parquet

        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return rows
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]
