import gzip
import json
from pathlib import Path

import huggingface_hub
import pyarrow
import pytest
from pyarrow import parquet

from model_store import LatteMixError
from training.evaluate import hub
from training.evaluate.sets import collect

ROWS = [
    {"sentence1": "one", "sentence2": "two", "score": 3.5},
    {"sentence1": "three", "sentence2": "four", "score": 0},
    {"sentence1": "five", "sentence2": "six", "score": 1},
    {"sentence1": "seven", "sentence2": None, "score": 1},
]


@pytest.fixture
def repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub, in a folder."""
    stsb, sick = tmp_path / "mteb/stsbenchmark-sts", tmp_path / "mteb/sickr-sts/data"
    stsb.mkdir(parents=True)
    sick.mkdir(parents=True)
    lines = "".join(json.dumps(row) + "\n" for row in ROWS)
    (stsb / "validation.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (stsb / "test.jsonl").write_text(lines)
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), sick / "test-00000-of-00001.parquet")

    def fetched(repository: str, repo_type: str, allow_patterns: list[str]) -> str:
        assert repo_type == "dataset"
        folder = tmp_path / repository
        if not folder.exists():
            raise OSError("401 Client Error\nand more")
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetched)
    return tmp_path


@pytest.mark.usefixtures("repositories")
def test_sets_by_name_in_every_form_they_are_published_in() -> None:
    names = ["stsb", "stsb-dev", "sick-r", "sts12", "stsb-train", "sts99"]
    found, left_out = collect([*hub.readers([hub.HUB], names)])
    assert [pairs.name for pairs in found] == ["stsb", "stsb-dev", "sick-r"]
    for pairs in found:
        assert (pairs.a, pairs.gold) == (["one", "three", "five"], [3.5, 0, 1])
        assert pairs.left_out[0].endswith("line 4: an empty sentence.")
    assert left_out[:3] == [
        "sts12: Cannot fetch mteb/sts12-sts from the hub: 401 Client Error",
        "stsb-train: mteb/stsbenchmark-sts on the hub has no file of its train split.",
        "sts99: The hub has no 'sts99': choose among sts12, sts13, sts14, sts15, sts16, sick-r, "
        "stsb, stsb-dev, stsb-train.",
    ]


@pytest.mark.usefixtures("repositories")
def test_nothing_of_it_is_there() -> None:
    with pytest.raises(LatteMixError, match="nothing to evaluate on"):
        collect([*hub.readers([hub.HUB], ["sts12"])])


@pytest.mark.usefixtures("repositories")
def test_a_split_in_several_files_beside_a_file_of_ones_own(
    repositories: Path, tmp_path: Path
) -> None:
    more = repositories / "mteb/sickr-sts/data/test-00001-of-00002.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(ROWS[:2]), more)
    mine = tmp_path / "mine.tsv"
    mine.write_text("1\ta\tb\n2\tc\td\n3\te\tf\n")
    (sick, own), _ = collect([*hub.readers([hub.HUB, mine], ["sick-r"])])
    assert (len(sick), len(own)) == (5, 3)


def test_a_folder_called_hub_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hub").mkdir()
    with pytest.raises(LatteMixError, match="hub has no stsbenchmark"):
        collect([*hub.readers([hub.HUB], ["stsb"])])
