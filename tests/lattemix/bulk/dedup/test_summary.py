from pathlib import Path

import pytest

from lattemix.bulk.runners import LocalRunner
from lattemix.settings import ModelSettings
from tests.lattemix.bulk.dedup.conftest import (
    Run,
    duplicated_texts,
    random_texts,
    variant,
    write_lines,
)

BASE = random_texts(6, seed=5)


def test_counts_rows_and_groups(tmp_path: Path, run: Run) -> None:
    a, b = BASE[:2]
    texts = [a, variant(a), a, variant(a), b, b, BASE[2], "", "", "!?"]
    summary = run(write_lines(tmp_path / "x.txt", texts), tmp_path / "out", keep="shortest")
    assert (summary.rows, summary.kept) == (10, 6)
    assert (summary.identical, summary.similar) == (2, 2)
    assert summary.not_compared == 3
    assert summary.first_not_compared.startswith("x.txt, row 8: its text is empty")
    assert summary.group_sizes == {2: 1, 4: 1}
    assert summary.keep == "shortest"
    assert (summary.threshold, summary.floor) == (0.9, pytest.approx(0.85))
    assert summary.candidates_by.model == "static:fp32"
    assert summary.rescored_by is None


def test_does_not_count_the_rows_to_compare_against(tmp_path: Path, run: Run) -> None:
    old = write_lines(tmp_path / "old.txt", [BASE[0], BASE[0], "", "..."])
    source = write_lines(tmp_path / "x.txt", [variant(BASE[0]), BASE[1], "!?"])
    summary = run(source, tmp_path / "out", against=old)
    assert (summary.rows, summary.kept, summary.similar, summary.not_compared) == (3, 2, 1, 1)
    none = run(write_lines(tmp_path / "y.txt", BASE), tmp_path / "none", against=old)
    assert (none.not_compared, none.first_not_compared) == (0, "")


def test_counts_scores_of_pairs_by_hundredths(tmp_path: Path, run: Run) -> None:
    source = write_lines(tmp_path / "x.txt", duplicated_texts(60))
    summary = run(source, tmp_path / "out", threshold=0.9, floor=0.7)
    assert sum(summary.scores.values()) == summary.candidates
    assert min(summary.scores) >= "0.70"
    assert max(summary.scores) == "0.99", "which includes scores of 1"
    assert [*summary.scores] == sorted(summary.scores)


def test_quotes_pairs_on_both_sides_of_the_threshold(tmp_path: Path, run: Run) -> None:
    source = write_lines(tmp_path / "x.txt", duplicated_texts(150))
    summary = run(source, tmp_path / "out", floor=0.6)
    above = [pair.score for pair in summary.least_similar_duplicates]
    below = [pair.score for pair in summary.most_similar_others]
    assert len(above) == len(below) == 10
    assert above == sorted(above)
    assert below == sorted(below, reverse=True)
    assert max(below) <= 0.9 <= min(above)
    texts = source.read_text().splitlines()
    for pair in summary.least_similar_duplicates + summary.most_similar_others:
        assert pair.text in texts
        assert pair.other in texts
        assert pair.text != pair.other


def test_quotes_the_beginning_of_a_long_text(tmp_path: Path, run: Run) -> None:
    long = " ".join([BASE[0]] * 20)
    source = write_lines(tmp_path / "x.txt", [long, f"{long}!", BASE[1]])
    (pair,) = run(source, tmp_path / "out").least_similar_duplicates
    assert pair.text == pair.other == f"{long[:299]}…"


def test_counts_truncated_texts(tmp_path: Path, run: Run, model_settings: ModelSettings) -> None:
    runner = LocalRunner(model_settings.model_copy(update={"truncate": "right"}))
    source = write_lines(tmp_path / "x.txt", [BASE[0], "dog " * 40, "sea " * 40])
    summary = run(source, tmp_path / "out", model="tiny", runner=runner)
    assert summary.truncated == 2
