from pathlib import Path

import pytest

from tests.tiny import SENTENCES


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_benchmarks(tmp_path / "data")


def write_benchmarks(directory: Path) -> Path:
    """A folder in the benchmarks' layouts; a quote is text there, not quoting."""
    pairs = [(SENTENCES[i].replace("a child", '"a child'), SENTENCES[i - 3]) for i in range(10)]
    stsb = directory / "stsbenchmark"
    stsb.mkdir(parents=True)
    rows = [f"main\tset\tyear\t{i}\t{i * 7 % 5}.0\t{a}\t{b}" for i, (a, b) in enumerate(pairs)]
    for name in ("sts-dev.csv", "sts-test.csv"):
        (stsb / name).write_text("\n".join(rows) + "\n")
    year = directory / "STS13-en-test"
    year.mkdir()
    for subset, size in (("FNWN", 10), ("OnWN", 6), ("SMT", 9)):
        lines = [f"{a}\t{b}" for a, b in pairs[:size]]
        (year / f"STS.input.{subset}.txt").write_text("\n".join(lines) + "\n")
        gold = ["" if i == 4 else str(i % 3) for i in range(size)]  # one without a score
        (year / f"STS.gs.{subset}.txt").write_text("\n".join(gold) + "\n")
    sick = directory / "SICK"
    sick.mkdir()
    rows = [f"{i}\t{a}\t{b}\t{i % 4}.5\tNEUTRAL" for i, (a, b) in enumerate(pairs)]
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    (sick / "SICK_test_annotated.txt").write_text("\n".join([header, *rows]) + "\n")
    words = directory / "words"
    words.mkdir()
    pairs_of_words = ["man\tdog\t2", "sea\tblue\t7.5", "market\tprices\t8", "cat\tdog\t9"]
    (words / "EN-SIMLEX-999.txt").write_text("\n".join(pairs_of_words) + "\n")
    return directory
