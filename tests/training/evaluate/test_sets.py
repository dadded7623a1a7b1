import gzip
import json
from pathlib import Path

import huggingface_hub
import pyarrow
import pytest
from pyarrow import parquet

from model_store import LatteMixError
from tests.tiny import SENTENCES
from training.evaluate import sets

HUB_ROWS = [
    {"sentence1": "one", "sentence2": "two", "score": 3.5},
    {"sentence1": "three", "sentence2": "four", "score": 0},
    {"sentence1": "five", "sentence2": "six", "score": 1},
    {"sentence1": "seven", "sentence2": None, "score": 1},
]


def test_reads_benchmarks_from_a_folder(data: Path) -> None:
    stsb, year, smt, sick = (
        sets.read(data, name) for name in ("stsb-dev", "sts13", "sts13-smt", "sick-r")
    )
    assert stsb.gold[:3] == [0, 2, 4]
    assert stsb.a[7].startswith('"a child')
    assert year.subsets == ["FNWN"] * 9 + ["OnWN"] * 5  # pairs without a score are skipped
    assert smt.subsets == [*year.subsets, *["SMT"] * 8]
    assert sick.gold[:5] == [0.5, 1.5, 2.5, 3.5, 0.5]
    for pairs in (stsb, year, smt, sick):
        assert len(pairs.a) == len(pairs.b) == len(pairs.gold) == len(pairs.subsets)
        assert (pairs.a[0], pairs.b[0]) == (SENTENCES[0], SENTENCES[-3])


def test_reads_a_tab_separated_file_with_header_and_bom(tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    path.write_text("\ufeffscore\ta\tb\n1\tone\ttwo\r\n0.5\tthree\tfour\n0\tfive\tsix\n")
    pairs = sets.read_file(path)
    assert pairs.name == "mine"
    assert (pairs.gold, pairs.a, pairs.b) == (
        [1, 0.5, 0],
        ["one", "three", "five"],
        ["two", "four", "six"],
    )
    assert pairs.left_out == []


def test_rejects_a_file_with_two_columns(tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    path.write_text("one\ttwo\n" * 5)
    with pytest.raises(LatteMixError, match=r"mine\.tsv, line 1: expected three .* there are 2\."):
        sets.read_file(path)


def test_notes_unusable_rows_by_line_number(data: Path) -> None:
    path = data / "stsbenchmark" / "sts-dev.csv"
    bad = ["too\tfew", "a\tb\tc\td\tscore\te\tf", "a\tb\tc\td\t\te\tf", "a\tb\tc\td\t1\t \tf"]
    bad += ["a\tb\tc\td\tnan\te\tf", *["short"] * 6]
    path.write_text(path.read_text() + "\n".join(bad) + "\n")
    pairs = sets.read(data, "stsb-dev")
    assert len(pairs) == 10
    assert [note.removeprefix(f"stsb-dev: {path}, ") for note in pairs.left_out] == [
        "lines 11, 16, 17, 18, 19 and 2 more: expected a score and two sentences in columns 5, 6 "
        "and 7.",
        "line 12: a score that is not a number.",
        "line 13: no score.",
        "line 14: an empty sentence.",
        "line 15: a score that is not finite.",
    ]


def test_lists_the_sentences_of_all_subsets_and_splits(data: Path) -> None:
    (data / "STS13-en-test" / "STS.gs.SMT.txt").unlink()
    (data / "STS13-en-test" / "STS.input.SMT.txt").write_text("an unrated one\tanother\n")
    (data / "stsbenchmark" / "sts-train.csv").write_text("a\tb\tc\td\t1\tof train\tof it, too\n")
    (data / "SICK" / "SICK_trial.txt").write_text("pair_ID\tsentence_A\n1\tof trial\n")
    sentences = set(sets.all_sentences(data))
    assert {"an unrated one", "another", "of train", "of it, too", "of trial"} <= sentences
    for name in ("stsb", "sts13", "sick-r"):
        assert {*sets.read(data, name).sentences} <= sentences


def test_skips_a_subset_whose_files_do_not_match(data: Path) -> None:
    (data / "STS13-en-test" / "STS.gs.FNWN.txt").write_text("1\n2\n")
    (data / "STS13-en-test" / "STS.gs.SMT.txt").unlink()
    pairs = sets.read(data, "sts13-smt")
    assert set(pairs.subsets) == {"OnWN"}
    assert pairs.left_out[0].endswith("has 10 lines, but STS.gs.FNWN.txt has 2.")
    assert "STS.gs.SMT.txt: No such file" in pairs.left_out[1] + pairs.left_out[2]


def test_skips_missing_sets(data: Path, tmp_path: Path) -> None:
    pairs, left_out = sets.read_sets(
        [data, tmp_path / "none.tsv"], ["sts12", "sts99", "stsb-dev", "sick-r"]
    )
    assert [each.name for each in pairs] == ["stsb-dev", "sick-r"]
    assert left_out == [
        f"sts12: {data} has no STS12-en-test.",
        "sts99: There is no set 'sts99': choose among stsb-train, stsb-dev, stsb, sts13-smt, "
        "sts12, sts13, sts14, sts15, sts16, sick-r.",
        f"none: Cannot read {tmp_path / 'none.tsv'}: No such file or directory.",
    ]


def test_skips_a_second_set_of_the_same_name(data: Path, tmp_path: Path) -> None:
    again = tmp_path / "sts-dev.csv"
    again.write_text((data / "stsbenchmark" / "sts-dev.csv").read_text())
    pairs, left_out = sets.read_sets([data, again], ["stsb-dev"])
    assert [each.name for each in pairs] == ["stsb-dev"]
    assert left_out == ["stsb-dev: another set has this name; rename the file."]


def test_raises_if_no_set_can_be_read(data: Path) -> None:
    with pytest.raises(LatteMixError, match=r"No set could be read\. sts12: .* has no STS12"):
        sets.read_sets([data], ["sts12"])


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("", r"mine\.tsv, line 1: expected three"),
        ("x\ta\tb\n", r"0 usable pairs\. mine: .*, line 1: a score that is not a number"),
        ("1\ta\tb\n2\tc\td\n", "2 usable pairs"),
        ("1\ta\tb\n1\tc\td\n1\te\tf\n", "gives all pairs the same score"),
        ("\xff", "not UTF-8"),
    ],
)
def test_rejects_unusable_files(tmp_path: Path, rows: str, problem: str) -> None:
    path = tmp_path / "mine.tsv"
    path.write_text(rows, encoding="latin-1")
    with pytest.raises(LatteMixError, match=problem):
        sets.read_file(path)


@pytest.fixture
def repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of the hub."""
    stsb, sick = tmp_path / "mteb/stsbenchmark-sts", tmp_path / "mteb/sickr-sts/data"
    stsb.mkdir(parents=True)
    sick.mkdir(parents=True)
    lines = "".join(json.dumps(row) + "\n" for row in HUB_ROWS)
    (stsb / "validation.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
    (stsb / "test.jsonl").write_text(lines)
    parquet.write_table(pyarrow.Table.from_pylist(HUB_ROWS), sick / "test-00000-of-00001.parquet")

    def fetched(repository: str, repo_type: str, allow_patterns: list[str]) -> str:
        assert repo_type == "dataset"
        folder = tmp_path / repository
        if not folder.exists():
            raise OSError("401 Client Error\nand more")
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetched)
    return tmp_path


@pytest.mark.usefixtures("repositories")
def test_reads_sets_from_the_hub_in_every_file_format() -> None:
    names = ["stsb", "stsb-dev", "sick-r", "sts12", "stsb-train", "sts99"]
    pairs, left_out = sets.read_sets([sets.HUB], names)
    assert [each.name for each in pairs] == ["stsb", "stsb-dev", "sick-r"]
    for each in pairs:
        assert (each.a, each.gold) == (["one", "three", "five"], [3.5, 0, 1])
        assert each.left_out[0].endswith("line 4: an empty sentence.")
    assert left_out[:3] == [
        "sts12: Cannot fetch mteb/sts12-sts from the hub: 401 Client Error",
        "stsb-train: mteb/stsbenchmark-sts on the hub has no file of its train split.",
        "sts99: The hub has no 'sts99': choose among sts12, sts13, sts14, sts15, sts16, sick-r, "
        "stsb, stsb-dev, stsb-train.",
    ]


@pytest.mark.usefixtures("repositories")
def test_reads_a_hub_split_of_several_files_and_a_local_file(
    repositories: Path, tmp_path: Path
) -> None:
    more = repositories / "mteb/sickr-sts/data/test-00001-of-00002.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(HUB_ROWS[:2]), more)
    file = tmp_path / "mine.tsv"
    file.write_text("1\ta\tb\n2\tc\td\n3\te\tf\n")
    (sick, own), _ = sets.read_sets([sets.HUB, file], ["sick-r"])
    assert (len(sick), len(own)) == (5, 3)


def test_prefers_a_local_folder_named_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hub").mkdir()
    with pytest.raises(LatteMixError, match="hub has no stsbenchmark"):
        sets.read_sets([sets.HUB], ["stsb"])
