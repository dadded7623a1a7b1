"""Inputs and arguments that are rejected, and what they leave behind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from lattemix.bulk.dedup import vectors
from lattemix.bulk.dedup.inputs import Input
from lattemix.bulk.runners import LocalRunner
from lattemix.settings import ModelSettings
from model_store import LatteMixError, Manifest
from tests.lattemix.bulk.dedup.conftest import Run, random_texts, write_lines

BASE = random_texts(6, seed=5)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.txt", b"a dog\na \xff\n", r"x\.txt, line 2: this is not UTF-8 text\.$"),
        ("x.csv", b"text\na dog\n\xff\n", r"x\.csv, line 3: this is not UTF-8 text\.$"),
        ("x.csv", b'text\n"a dog\n', r"x\.csv, line 2: unexpected end of data"),
        ("x.csv", b"text,n\na dog\n", r"x\.csv, line 2: expected 2 columns, found 1"),
        ("x.csv", b"a,b\n1,2\n", r"x\.csv: expected columns named text or sentence"),
        ("x.jsonl", b'{"text": "a dog"}\n{"text": 1}\n', r"x\.jsonl, line 2: expected a string"),
        ("x.jsonl", b'"a"\nnot json\n', r"x\.jsonl, line 2: this is not JSON"),
        ("x.parquet", b"PAR1", r"x\.parquet cannot be read as Parquet"),
        ("x.doc", b"a dog\n", r"x\.doc: sentences are read from \.csv, \.tsv"),
    ],
)
def test_names_invalid_input_and_leaves_nothing_behind(
    tmp_path: Path, run: Run, name: str, content: bytes, message: str
) -> None:
    (tmp_path / "in").mkdir()
    write_lines(tmp_path / "in/a.txt", BASE)  # read first
    (tmp_path / "in" / name).write_bytes(content)
    with pytest.raises(LatteMixError, match=message):
        run(tmp_path / "in", tmp_path / "out")
    assert names(tmp_path) == ["in"]
    write_lines(tmp_path / "in/x.txt", BASE)
    if name != "x.txt":
        (tmp_path / "in" / name).unlink()
    assert run(tmp_path / "in", tmp_path / "out").kept == len(BASE), "it can be run again"


def test_names_the_row_of_a_missing_text(tmp_path: Path, run: Run) -> None:
    parquet.write_table(pyarrow.table({"text": ["a dog", None]}), tmp_path / "x.parquet")
    with pytest.raises(LatteMixError, match=r"x\.parquet, row 2: column text is null\.$"):
        run(tmp_path / "x.parquet", tmp_path / "out")
    assert names(tmp_path) == ["x.parquet"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"keep": "best"}, r"best.*: choose among first, longest, shortest, max:COLUMN\.$"),
        (
            {"keep": "max:likes"},
            r"x\.txt: sentences are read from \.csv, .*\.parquet; text has no columns\.$",
        ),
        (
            {"column": "body"},
            r"x\.txt: sentences are read from \.csv, .*\.parquet; text has no columns\.$",
        ),
        ({"against_only": True}, r"against-only needs --against\.$"),
        ({"threshold": 1.2}, r"threshold.*1\.2: scores of centred are from -1 to 1\.$"),
        ({"threshold": float("nan")}, r"threshold.*nan"),
        ({"threshold": None}, r"static has no default threshold"),
        ({"threshold": 0.8, "floor": 0.85}, r"threshold.*0\.8.*below.*floor.*0\.85"),
        ({"threshold": 0.8, "floor": float("nan")}, r"floor is nan: scores are at most 1\.$"),
        (
            {"threshold": 0.8, "floor": 1.5, "rescore": "tiny"},
            r"floor is 1\.5: scores are at most 1\.$",
        ),
        ({"metric": "js"}, r"metric.*js.*cosine, bhattacharyya or centred\.$"),
        ({"metric": "l2"}, r"metric.*l2.*cosine, bhattacharyya or centred\.$"),
        ({"metric": "js", "rescore": "tiny"}, r"metric.*js.*cosine, bhattacharyya or centred\.$"),
        ({"model": "none"}, r"There is no model 'none'"),
        ({"rescore": "none"}, r"There is no model 'none'"),
        ({"threshold_on": "probability"}, r"the model has no calibration"),
    ],
)
def test_invalid_arguments_leave_nothing_behind(
    tmp_path: Path, run: Run, arguments: dict[str, Any], message: str
) -> None:
    source = write_lines(tmp_path / "x.txt", BASE)
    with pytest.raises(LatteMixError, match=message):
        run(source, tmp_path / "out", **arguments)
    assert names(tmp_path) == ["x.txt"]


def test_rejects_an_existing_output(tmp_path: Path, run: Run) -> None:
    source = write_lines(tmp_path / "x.txt", BASE)
    (tmp_path / "out").mkdir()
    with pytest.raises(LatteMixError, match=r"out exists: remove it, or choose another\.$"):
        run(source, tmp_path / "out")
    with pytest.raises(LatteMixError, match=r"there is no directory .*none\.$"):
        run(source, tmp_path / "none/out")
    assert names(tmp_path) == ["out", "x.txt"]


def test_rejects_a_work_directory_that_is_the_output(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lines(tmp_path / "x.txt", BASE)
    monkeypatch.setattr(vectors.VectorsWorker, "__call__", None)  # before the work, not after
    with pytest.raises(LatteMixError, match="cannot be both the output and the work"):
        run(source, tmp_path / "out", work=tmp_path / "out")
    assert names(tmp_path) == ["x.txt"]


@pytest.mark.parametrize("place", ["in/out", "in/a/out", "in/../in/out", "link/out"])
@pytest.mark.parametrize("argument", ["output", "work"])
def test_rejects_results_inside_the_input(
    tmp_path: Path, run: Run, place: str, argument: str
) -> None:
    (tmp_path / "in/a").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "in")
    write_lines(tmp_path / "in/x.txt", BASE)
    paths = {"output": tmp_path / "out", "work": tmp_path / "work"}
    with pytest.raises(LatteMixError, match=r"is inside .*in: choose another"):
        run(tmp_path / "in", **(paths | {argument: tmp_path / place}))
    assert names(tmp_path) == ["in", "link"]
    assert names(tmp_path / "in") == ["a", "x.txt"]


def test_rejects_results_inside_the_files_to_compare_against(tmp_path: Path, run: Run) -> None:
    (tmp_path / "old").mkdir()
    write_lines(tmp_path / "old/x.txt", BASE)
    source = write_lines(tmp_path / "x.txt", BASE)
    with pytest.raises(LatteMixError, match=r"is inside .*old: choose another"):
        run(source, tmp_path / "old/out", against=tmp_path / "old")
    assert names(tmp_path / "old") == ["x.txt"]


def test_rejects_a_directory_without_files(tmp_path: Path, run: Run) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(LatteMixError, match=r"in holds no files\.$"):
        run(tmp_path / "in", tmp_path / "out")
    assert names(tmp_path) == ["in"]


@pytest.mark.parametrize(
    ("name", "content"),
    [("x.txt", ""), ("x.csv", ""), ("x.csv", "text,n\n"), ("x.jsonl", "\n\n"), ("x.tsv", "text\n")],
)
def test_rejects_input_without_rows(tmp_path: Path, run: Run, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(LatteMixError, match=rf"There are no rows in .*{name}\.$"):
        run(tmp_path / name, tmp_path / "out")
    assert names(tmp_path) == [name]


def test_a_single_row_is_kept(tmp_path: Path, run: Run) -> None:
    summary = run(write_lines(tmp_path / "x.txt", BASE[:1]), tmp_path / "out")
    assert (summary.rows, summary.kept) == (1, 1)


def test_an_empty_file_to_compare_against_has_no_effect(tmp_path: Path, run: Run) -> None:
    source, old = write_lines(tmp_path / "x.txt", BASE), write_lines(tmp_path / "old.txt", [])
    assert run(source, tmp_path / "out", against=old).kept == len(BASE)
    assert run(old, tmp_path / "none", against=source).rows == 0


@pytest.mark.parametrize("model", ["static", "tiny"])
def test_keeps_a_row_of_a_million_characters(tmp_path: Path, run: Run, model: str) -> None:
    long = "dog " * 250_000
    texts = [BASE[0], long, BASE[1], f"{long}.", BASE[0]]
    summary = run(write_lines(tmp_path / "x.txt", texts), tmp_path / "out", model=model)
    assert summary.rows == 5
    kept = (tmp_path / "out/kept.txt").read_text().splitlines()
    if model == "static":  # which reads texts of any length
        assert kept == [BASE[0], long, BASE[1]]
    else:
        assert kept == [BASE[0], long, BASE[1], f"{long}."]
        assert summary.not_compared == 2
        assert "tokens" in summary.first_not_compared


def change_input(source: Path, _: Any) -> None:
    write_lines(source, BASE[:3])


def add_file(source: Path, _: Any) -> None:
    write_lines(source.with_name("y.txt"), BASE)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (change_input, {}, "other input files, or they have changed since: continue with the same"),
        (add_file, {}, "other input files, or they have changed since: continue with the same"),
        (None, {"column": "text"}, "no --column: continue"),
        (None, {"model": "tiny"}, "--model static:fp32"),
        (None, {"metric": "cosine"}, "metric"),
        (None, {"against": "in"}, "other input files"),
    ],
)
def test_continues_only_with_the_same_input_and_vectors(
    tmp_path: Path,
    run: Run,
    change: Callable[[Path, Any], None] | None,
    options: dict[str, Any],
    message: str,
) -> None:
    (tmp_path / "in").mkdir()
    source = (tmp_path / "in/x.csv") if "column" in options else (tmp_path / "in/x.txt")
    write_lines(source, ["text", *BASE])
    run(tmp_path / "in", tmp_path / "out")
    before = names(tmp_path / "out.work")
    if change is not None:
        change(source, None)
    if "against" in options:
        options = {"against": source}
    with pytest.raises(LatteMixError, match=rf"out\.work was started with .*{message}"):
        run(tmp_path / "in", tmp_path / "again", work=tmp_path / "out.work", **options)
    assert names(tmp_path / "out.work") == before
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize(
    ("update", "message"),
    [
        ({"truncate": "right"}, "--truncate window"),
        ({"max_windows": 3}, "LATTEMIX_MAX_WINDOWS=64"),
    ],
)
def test_continues_only_with_the_same_settings(
    tmp_path: Path, run: Run, model_settings: ModelSettings, update: dict[str, Any], message: str
) -> None:
    source = write_lines(tmp_path / "x.txt", BASE)
    run(source, tmp_path / "out")
    runner = LocalRunner(model_settings.model_copy(update=update))
    with pytest.raises(LatteMixError, match=f"was started with {message}: continue with the same"):
        run(source, tmp_path / "again", work=tmp_path / "out.work", runner=runner)


def test_continues_only_with_the_same_weights(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lines(tmp_path / "x.txt", BASE)
    run(source, tmp_path / "out")
    monkeypatch.setattr(Manifest, "fingerprint", property(lambda _: "another"))
    with pytest.raises(LatteMixError, match="was started with another static:fp32 in the store"):
        run(source, tmp_path / "again", work=tmp_path / "out.work")


@pytest.mark.parametrize("rescore", [None, "tiny"])
def test_rejects_weights_that_change_during_the_run(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, rescore: str | None
) -> None:
    models = 1 if rescore is None else 2
    fingerprints = iter(["task"] * models + ["worker"] * 9)
    monkeypatch.setattr(Manifest, "fingerprint", property(lambda _: next(fingerprints)))
    with pytest.raises(LatteMixError, match="has another static:fp32 than the task"):
        run(write_lines(tmp_path / "x.txt", BASE), tmp_path / "out", rescore=rescore, floor=0.5)


def test_rejects_input_that_changes_during_the_run(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lines(tmp_path / "x.txt", BASE)
    encode = vectors.VectorsWorker.__call__

    def after_a_change(worker: Any, shard: Any) -> Any:
        write_lines(source, BASE[::-1])
        return encode(worker, shard)

    monkeypatch.setattr(vectors.VectorsWorker, "__call__", after_a_change)
    with pytest.raises(LatteMixError, match=r"changed while it was read: remove .*out\.work\.$"):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_names_a_damaged_plan(tmp_path: Path, run: Run) -> None:
    source = write_lines(tmp_path / "x.txt", BASE)
    run(source, tmp_path / "out")
    (tmp_path / "out.work/_plan.json").write_text("{")
    with pytest.raises(LatteMixError, match=r"_plan\.json is damaged: remove .*out\.work\.$"):
        run(source, tmp_path / "again", work=tmp_path / "out.work")


def test_lists_files_and_their_state(tmp_path: Path) -> None:
    (tmp_path / "in/b").mkdir(parents=True)
    for name in ("in/b/x.txt", "in/a.jsonl", "in/_meta", "in/.x.txt.crc", "old.csv"):
        (tmp_path / name).write_text("text\n")
    source = Input(tmp_path / "in", None, tmp_path / "old.csv", "first")
    files = source.files()
    assert files.paths == [tmp_path / name for name in ("old.csv", "in/a.jsonl", "in/b/x.txt")]
    assert source.files() == files
    (tmp_path / "in/a.jsonl").write_text('"more"\n')
    assert source.files() != files


def test_a_column_of_numbers_may_have_any_case(tmp_path: Path, run: Run) -> None:
    for column, header in ((None, "Text,Likes"), ("Body", "Body,Likes")):
        source = tmp_path / f"{column}.csv"
        source.write_text(f"{header}\n{BASE[0]},1\n{BASE[0]}!,2\n")
        output = tmp_path / f"{column}.out"
        run(source, output, column=column, keep="max:Likes")
        assert (output / "kept.csv").read_text() == f"{header}\n{BASE[0]}!,2\n"
