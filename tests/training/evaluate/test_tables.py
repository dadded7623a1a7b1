import csv
import json
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from training.evaluate import tables
from training.evaluate.tables import Record, SeedMean, Table


@dataclass(frozen=True)
class Example:
    left_out: list[str] = field(default_factory=lambda: ["sts12: [not] there."])

    def tables(self) -> list[Table]:
        return [Table("First", ["a", "b"], [["x", "1.00", "2.00 ± 0.10"]])]

    def records(self) -> list[Record]:
        return [{"method": "x", "mean": 1.23456}, {"method": "ü", "mean": float("nan"), "seeds": 3}]


def test_report_as_markdown() -> None:
    assert tables.markdown(Example()) == (
        "First\n\n|  | a | b |\n| --- | --- | --- |\n| x | 1.00 | 2.00 ± 0.10 |\n\n"
        "Left out:\n\n- sts12: [not] there."
    )
    assert "Left out" not in tables.markdown(Example([]))


def test_prints_markdown_when_piped(capsys: pytest.CaptureFixture[str]) -> None:
    tables.show(Example())
    assert capsys.readouterr().out == tables.markdown(Example()) + "\n"


def test_prints_tables_on_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    tables.show(Example())
    shown = capsys.readouterr().out
    assert "First" in shown
    assert "│ x │ 1.00 │ 2.00 ± 0.10 │" in shown
    assert "sts12: [not] there." in shown  # brackets are text, not markup


def test_writes_json_and_csv_without_nan(tmp_path: Path) -> None:
    tables.write(Example(), tmp_path / "new" / "report")
    report = json.loads((tmp_path / "new" / "report" / "report.json").read_text())
    assert report["results"] == [
        {"method": "x", "mean": 1.2346},
        {"method": "ü", "mean": None, "seeds": 3},
    ]
    assert report["left_out"] == ["sts12: [not] there."]
    with (tmp_path / "new" / "report" / "report.csv").open(newline="") as file:
        assert list(csv.DictReader(file)) == [
            {"method": "x", "mean": "1.2346", "seeds": ""},
            {"method": "ü", "mean": "", "seeds": "3"},
        ]


def test_figure_of_one_seed_has_no_deviation() -> None:
    assert str(SeedMean.of([1.0, 2.0])) == "1.50 ± 0.71"
    assert str(SeedMean.of([1.0])) == "1.00"
