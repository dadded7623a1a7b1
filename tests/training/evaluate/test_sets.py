from pathlib import Path

import pytest

from model_store import LatteMixError
from tests.conftest import SENTENCES
from training.evaluate import sets


def test_reading_the_benchmarks(data: Path) -> None:
    stsb, year, smt, sick = (
        sets.read(data, name) for name in ("stsb-dev", "sts13", "sts13-smt", "sick-r")
    )
    assert stsb.gold[:3] == [0, 2, 4]
    assert stsb.a[7].startswith('"a child')
    assert year.subsets == ["FNWN"] * 9 + ["OnWN"] * 5  # the pairs without a score are not there
    assert smt.subsets == [*year.subsets, *["SMT"] * 8]
    assert sick.gold[:5] == [0.5, 1.5, 2.5, 3.5, 0.5]
    for pairs in (stsb, year, smt, sick):
        assert len(pairs.a) == len(pairs.b) == len(pairs.gold) == len(pairs.subsets)
        assert (pairs.a[0], pairs.b[0]) == (SENTENCES[0], SENTENCES[-3])


def test_a_file_of_ones_own(tmp_path: Path) -> None:
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


def test_a_file_of_one_s_own_with_other_columns(tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    path.write_text("one\ttwo\n" * 5)
    with pytest.raises(LatteMixError, match=r"mine\.tsv, line 1: expected three .* there are 2\."):
        sets.read_file(path)


def test_rows_that_cannot_be_used_are_named_and_left_out(data: Path) -> None:
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


def test_files_that_do_not_match_cost_only_their_part(data: Path) -> None:
    (data / "STS13-en-test" / "STS.gs.FNWN.txt").write_text("1\n2\n")
    (data / "STS13-en-test" / "STS.gs.SMT.txt").unlink()
    pairs = sets.read(data, "sts13-smt")
    assert set(pairs.subsets) == {"OnWN"}
    assert pairs.left_out[0].endswith("has 10 lines, but STS.gs.FNWN.txt has 2.")
    assert "STS.gs.SMT.txt: No such file" in pairs.left_out[1] + pairs.left_out[2]


def test_what_is_not_there_does_not_stop_what_is(data: Path, tmp_path: Path) -> None:
    found, left_out = sets.read_sets(
        [data, tmp_path / "none.tsv"], ["sts12", "sts99", "stsb-dev", "sick-r"]
    )
    assert [pairs.name for pairs in found] == ["stsb-dev", "sick-r"]
    assert left_out == [
        f"sts12: {data} has no STS12-en-test.",
        "sts99: There is no set 'sts99': choose among stsb-train, stsb-dev, stsb, sts13-smt, "
        "sts12, sts13, sts14, sts15, sts16, sick-r.",
        f"none: Cannot read {tmp_path / 'none.tsv'}: No such file or directory.",
    ]


def test_two_sets_of_one_name(data: Path, tmp_path: Path) -> None:
    again = tmp_path / "sts-dev.csv"
    again.write_text((data / "stsbenchmark" / "sts-dev.csv").read_text())
    found, left_out = sets.read_sets([data, again], ["stsb-dev"])
    assert [pairs.name for pairs in found] == ["stsb-dev"]
    assert left_out == ["stsb-dev: there is a set of that name already; rename the file."]


def test_nothing_to_evaluate_on(data: Path) -> None:
    with pytest.raises(LatteMixError, match=r"nothing to evaluate on\. sts12: .* has no STS12"):
        sets.read_sets([data], ["sts12"])


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("", r"mine\.tsv, line 1: expected three"),
        ("x\ta\tb\n", r"0 usable pairs\. mine: .*, line 1: a score that is not a number"),
        ("1\ta\tb\n2\tc\td\n", "2 usable pairs"),
        ("1\ta\tb\n1\tc\td\n1\te\tf\n", "scores all pairs alike"),
        ("\xff", "not UTF-8"),
    ],
)
def test_files_that_say_nothing(tmp_path: Path, rows: str, problem: str) -> None:
    path = tmp_path / "mine.tsv"
    path.write_text(rows, encoding="latin-1")
    with pytest.raises(LatteMixError, match=problem):
        sets.read_file(path)
