from pathlib import Path

import pytest

from tests.training.conftest import Run
from tests.training.evaluate.conftest import write_benchmarks
from training.evaluate.overlap import Overlap, without
from training.evaluate.sets import Pairs
from training.exclusion import Exclusion

PAIRS = Pairs(
    "mine",
    a=["A man eats.", "The sea was calm.", "Two dogs."],
    b=["Lunch!", "a man EATS", "No dogs."],
    gold=[1, 2, 3],
    subsets=["", "", ""],
)


def test_drops_pairs_with_an_excluded_sentence_on_either_side() -> None:
    notes: list[str] = []
    kept = without(PAIRS, Exclusion(["a man eats"]), notes)
    assert (kept.a, kept.b, kept.gold) == (["Two dogs."], ["No dogs."], [3])
    assert notes == ["mine: 2 of 3 pairs have an excluded sentence."]


def test_keeps_sets_that_share_nothing() -> None:
    notes: list[str] = []
    assert without(PAIRS, Exclusion(["something else"]), notes) is PAIRS
    assert notes == []


def test_counts_sentences_and_pairs() -> None:
    (record,) = Overlap([PAIRS], Exclusion(["a man eats", "two dogs"])).records()
    assert record == {
        "set": "mine",
        "sentences": 6,
        "shared_sentences": 3,  # one of them in two spellings
        "pairs": 3,
        "shared_pairs": 3,
    }


def test_command_prints_a_row_per_set(
    run: Run, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_benchmarks(tmp_path / "data")
    assert run("overlap", "--corpus", corpus, "--data", data, "--sets", "stsb") == 0
    assert "| stsb | 11 | 11 | 10 | 10 |" in capsys.readouterr().out


def test_evaluation_leaves_out_excluded_pairs(
    run: Run, backbone: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, excluded = write_benchmarks(tmp_path / "data"), tmp_path / "excluded.txt"
    excluded.write_text("A man is eating.\n")
    arguments = ["--data", data, "--sets", "stsb", "--backbone", backbone, "--exclude", excluded]
    assert run("evaluate", *arguments, "--cache", tmp_path / "cache") == 0
    assert "of 10 pairs have an excluded sentence" in capsys.readouterr().out
