"""`lattemix evaluate` and `lattemix calibrate`."""

import json
from pathlib import Path

import pytest

from lattemix import Model, load
from lattemix.labelled.pairs import LabelledPairs
from model_store import Store
from model_store.calibration import Calibration
from tests.lattemix.conftest import run
from tests.lattemix.labelled.conftest import Write


def test_evaluate_prints_and_writes_a_table(
    capsys: pytest.CaptureFixture[str],
    store: Store,
    binary: LabelledPairs,
    write: Write,
    tmp_path: Path,
) -> None:
    out = tmp_path / "out.json"
    arguments = (str(write(binary)), "--models", "tiny", "--store", str(store.root))
    code, printed, _ = run(capsys, "evaluate", *arguments, "--out", str(out))
    assert code == 0
    assert printed.splitlines()[0].split()[:4] == ["model", "metric", "AUC", "average"]
    assert "* recommended by the model" in printed
    measured = json.loads(out.read_text())
    assert (measured["pairs"], measured["models"][0]["model"]) == (45, "tiny:fp32")


def test_evaluate_asks_a_server_about_its_models(
    capsys: pytest.CaptureFixture[str], server: str, binary: LabelledPairs, write: Write
) -> None:
    code, printed, _ = run(capsys, "evaluate", str(write(binary)), "--url", server)
    assert code == 0
    assert printed.count("tiny:fp32") == 5  # metrics


def test_calibrate_stores_a_model_and_a_report(
    capsys: pytest.CaptureFixture[str],
    private_store: Store,
    binary: LabelledPairs,
    write: Write,
    tmp_path: Path,
) -> None:
    report = tmp_path / "report"
    arguments = ("--model", "tiny", "--store", str(private_store.root), "--report", str(report))
    wanted = ("--precision", "0.7", "--recall", "0.9")
    pairs = str(write(binary))
    code, printed, told = run(capsys, "calibrate", pairs, "--out", "mine", *arguments, *wanted)
    assert code == 0
    assert "precision 0.7" in printed
    assert "recall 0.9" in printed
    assert "mine:fp32 is ready: LATTEMIX_MODEL=mine" in told
    assert {path.name for path in report.iterdir()} == {
        *("calibration.json", "report.json", "report.png")
    }
    calibration = Calibration.model_validate_json((report / "calibration.json").read_bytes())
    assert load("mine", store=private_store.root).info().calibration == calibration
    assert calibration.about == "pairs.csv, 45 labelled pairs"


def test_calibrate_only_reports_without_out(
    capsys: pytest.CaptureFixture[str], store: Store, binary: LabelledPairs, write: Write
) -> None:
    before = sorted(path.name for path in store.root.iterdir())
    arguments = ("--model", "tiny", "--store", str(store.root))
    code, printed, told = run(capsys, "calibrate", str(write(binary)), *arguments)
    assert (code, told) == (0, "")
    assert "Held out: expected calibration error" in printed
    assert sorted(path.name for path in store.root.iterdir()) == before


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        ([f"x{i},y,1" for i in range(5)], (), "There are 5 labels in"),
        ([f"x{i},y,1" for i in range(30)], (), "0 of 30 labels in"),
        ([f"x{i},y,{i % 2}" for i in range(30)] + ["x0,y,1"], (), "rows 1 and 31 are the same"),
        ([f"x{i},y,{i % 2}" for i in range(30)] + [",y,1"], (), "row 31: the first sentence is"),
        ([f"x{i},y,{i % 7}" for i in range(30)], ("--scale", "0,5"), "label 6 is outside the"),
        (
            [f"x{i},y,{i % 7}" for i in range(30)],
            (),
            "is neither 0 nor 1: for ratings, give their scale",
        ),
        (
            [f"x{i},y,{i % 6}" for i in range(30)],
            ("--scale", "0,5", "--precision", "0.9"),
            "--precision and --recall are for labels 0 and 1",
        ),
        ([f"x{i},y,{i % 2}" for i in range(30)], ("--out", "../x"), "is not a model name"),
        (
            [f"x{i},y,{i % 2}" for i in range(30)],
            ("--columns", "a,b"),
            "name two columns of sentences",
        ),
    ],
)
def test_calibrate_writes_nothing_on_bad_input(
    capsys: pytest.CaptureFixture[str],
    private_store: Store,
    tmp_path: Path,
    rows: list[str],
    options: tuple[str, ...],
    message: str,
) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text("\n".join(["a,b,label", *rows]) + "\n")
    before = sorted(tmp_path.rglob("*"))
    arguments = ("--model", "tiny", "--store", str(private_store.root), "--out", "mine")
    report = ("--report", str(tmp_path / "report"))
    code, printed, told = run(capsys, "calibrate", str(path), *arguments, *report, *options)
    assert (code, printed) == (1, "")
    assert message in told
    assert sorted(tmp_path.rglob("*")) == before


def test_calibrate_names_pairs_without_words(
    capsys: pytest.CaptureFixture[str], static_store: Store, tmp_path: Path, model: Model
) -> None:
    rows = [f"the dog {'runs ' * i},the park,{i % 2}" for i in range(30)]
    path = tmp_path / "pairs.csv"
    path.write_text("\n".join(["a,b,label", *rows, "qqq,the dog,1"]) + "\n")
    arguments = ("--model", "static", "--store", str(static_store.root))
    code, _, told = run(capsys, "calibrate", str(path), *arguments)
    assert code == 1
    assert "pairs.csv, row 31: a is empty: the model finds no words in it" in told
