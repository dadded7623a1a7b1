"""The command `lattemix dedup`."""

import json
from pathlib import Path
from typing import Any

import pytest

from model_store import Store
from tests.lattemix.bulk.dedup.conftest import random_texts, variant, write_lines
from tests.lattemix.conftest import run

A, B, C = random_texts(3, seed=5)


@pytest.fixture
def options(lattemix_environment: None, static_store: Store) -> list[str]:
    return ["--store", str(static_store.root), "--model", "static", "--threshold", "0.99"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "x.txt", [A, B, A, variant(B), C, "!?"])


def test_reports_what_was_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: Path, options: list[str]
) -> None:
    output = tmp_path / "out"
    code, out, err = run(capsys, "dedup", str(source), str(output), *options)
    assert (code, out) == (0, "")
    first, second, third = err.splitlines()
    dropped = "1 identical and 1 similar rows dropped"
    assert first == f"{output} is complete: 4 of 6 rows kept, {dropped}."
    assert second.startswith("Note: 1 rows were kept without a comparison; the first is x.txt, row")
    assert third.startswith(f"Intermediate results are in {output}.work (")
    assert third.endswith(f"--threshold with --work {output}.work.")
    assert (output / "kept.txt").read_text() == f"{A}\n{B}\n{C}\n!?\n"


def test_a_second_run_uses_the_results_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: Path, options: list[str]
) -> None:
    work = tmp_path / "work"
    for name in ("a", "b"):
        arguments = ["dedup", str(source), str(tmp_path / name), "--work", str(work), *options]
        assert run(capsys, *arguments)[0] == 0
    assert (tmp_path / "a/summary.json").read_bytes() == (tmp_path / "b/summary.json").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["a", "b", "work"]


def test_options_reach_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    source, old = tmp_path / "x.csv", write_lines(tmp_path / "old.csv", ["body", C])
    source.write_text(f"body,n\n{A},1\n{variant(A)},2\n{variant(C)},3\n")
    arguments = ["--column", "body", "--keep", "max:n", "--linkage", "complete"]
    arguments += ["--metric", "bhattacharyya", "--floor", "0.9", "--against", str(old)]
    code, _, err = run(capsys, "dedup", str(source), str(tmp_path / "out"), *options, *arguments)
    assert code == 0, err
    assert (tmp_path / "out/kept.csv").read_text() == f"body,n\n{variant(A)},2\n"
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    chosen = {name: summary[name] for name in ("threshold", "floor", "keep", "linkage")}
    assert chosen == {"threshold": 0.99, "floor": 0.9, "keep": "max:n", "linkage": "complete"}
    assert summary["candidates_by"]["metric"] == "bhattacharyya"


def test_compares_only_with_other_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], source: Path, options: list[str]
) -> None:
    old = write_lines(tmp_path / "old.txt", [C])
    arguments = ["dedup", str(source), str(tmp_path / "out"), *options, "--against-only"]
    code, _, err = run(capsys, *arguments, "--against", str(old))
    assert code == 0, err
    assert (tmp_path / "out/kept.txt").read_text() == f"{A}\n{B}\n{A}\n{variant(B)}\n!?\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--keep", "best"], "best"),
        (["--threshold", "7"], "threshold is 7: scores of cosine are from -1 to 1."),
        (["--against-only"], "--against-only needs --against."),
        (["--workers", "2"], "--workers is for --engine ray; --engine local uses all cores."),
        (["--work", "none/work"], "No such file or directory."),
        (["--model", "none"], "There is no model 'none'"),
    ],
)
def test_errors_are_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    source: Path,
    options: list[str],
    arguments: list[str],
    message: str,
) -> None:
    code, out, err = run(capsys, "dedup", str(source), str(tmp_path / "out"), *options, *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("lattemix: ")
    assert message in err
    assert "\n" not in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.txt"]


@pytest.mark.parametrize("arguments", [["--linkage", "single"], ["--metric", "euclid"]])
def test_rejects_unknown_choices(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    source: Path,
    options: list[str],
    arguments: list[str],
) -> None:
    code, _, err = run(capsys, "dedup", str(source), str(tmp_path / "out"), *options, *arguments)
    assert code == 2
    assert "is not one of" in " ".join(err.replace("│", "").split())


def test_rejects_a_missing_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str]
) -> None:
    code, _, err = run(capsys, "dedup", str(tmp_path / "none.txt"), "out", *options)
    assert code == 2
    assert "does not exist" in " ".join(err.replace("│", "").split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_is_one_sentence(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    source: Path,
    options: list[str],
) -> None:
    open_path = Path.open

    def full(path: Path, mode: str = "r", **options: Any) -> Any:
        is_full = path.name.startswith(".kept.txt") and "w" in mode
        return open_path(Path("/dev/full") if is_full else path, mode, **options)

    monkeypatch.setattr(Path, "open", full)
    code, _, err = run(capsys, "dedup", str(source), str(tmp_path / "out"), *options)
    assert code == 1
    assert err.endswith("kept.txt: No space left on device.")
    assert not (tmp_path / "out").exists()
