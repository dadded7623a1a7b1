"""`lattemix score` in this process: the numbers, and what a stop and a mistake leave behind."""

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from app import cli, similarity
from app.engine import Encoder
from app.score import Local, score
from app.score.folder import Folder
from app.score.worker import Worker
from app.settings import Settings
from model_store import Artifact, LatteMixError, Store
from tests.conftest import SENTENCES

PAIRS = [(SENTENCES[i % 10], SENTENCES[i * 7 % 10]) for i in range(25)]


def write(path: Path, rows: Sequence[tuple[Any, Any]] = PAIRS) -> Path:
    a, b = zip(*rows, strict=True)
    parquet.write_table(pyarrow.table({"a": a, "b": b, "id": range(len(rows))}), path)
    return path


Run = Callable[..., Any]


@pytest.fixture
def run(settings: Settings) -> Run:
    """Score as asked, with this of it changed."""

    def run(source: Path, output: Path, **changed: Any) -> Any:
        usual = {"columns": ("a", "b"), "keep": (), "metrics": ("cosine", "js"), "parts": "parquet"}
        asked = usual | {"shard_rows": 10, "start": lambda: Local(settings)} | changed
        return score(source, output, **asked)

    return run


def names(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())


def test_every_pair_is_scored_as_the_encoder_does(
    tmp_path: Path, run: Run, encoder: Encoder
) -> None:
    tally = run(write(tmp_path / "x.parquet"), tmp_path / "out")
    assert (tally.rows, tally.refused, tally.truncated) == (25, 0, 0)
    assert names(tmp_path / "out") == [
        "_score.json",
        *(f"part-0000{i}-of-00003.parquet" for i in (1, 2, 3)),
    ]
    table = parquet.read_table(tmp_path / "out")  # as one, passing over the summary
    assert table.column_names == ["a", "b", "cosine", "js", "truncated", "error"]
    assert [*zip(table["a"].to_pylist(), table["b"].to_pylist(), strict=True)] == PAIRS
    sides = [encoder.encode(side).mixtures for side in zip(*PAIRS, strict=True)]
    for metric in ("cosine", "js"):
        expected = similarity.similarity(metric, *sides)
        np.testing.assert_allclose(table[metric].to_numpy(), expected, atol=1e-6)


@pytest.mark.parametrize(("parts", "shape"), [("parquet", (20,)), ("npy", (4, 5))])
def test_one_column_is_embedded(
    tmp_path: Path, run: Run, encoder: Encoder, parts: str, shape: tuple[int, ...]
) -> None:
    run(write(tmp_path / "x.parquet"), tmp_path / "out", columns=["b"], parts=parts)
    part = tmp_path / "out" / f"part-00003-of-00003.{parts}"
    found = np.load(part) if parts == "npy" else parquet.read_table(part)["embedding"].to_pylist()
    expected = encoder.encode([b for _, b in PAIRS[20:]]).mixtures
    np.testing.assert_allclose(found, expected.reshape(5, *shape), atol=1e-6)


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.jsonl"])
def test_other_columns_are_carried_over(tmp_path: Path, run: Run, name: str) -> None:
    source = write(tmp_path / "x.parquet", PAIRS[:2])
    if name == "x.csv":
        source = tmp_path / name
        source.write_text(
            "b,id,a\n" + "".join(f"{b},{i},{a}\n" for i, (a, b) in enumerate(PAIRS[:2]))
        )
    if name == "x.jsonl":
        source = tmp_path / name
        lines = [json.dumps({"a": a, "b": b, "id": i}) for i, (a, b) in enumerate(PAIRS[:2])]
        source.write_text("\n".join(lines))
    run(source, tmp_path / "out", keep=["id"])
    table = parquet.read_table(tmp_path / "out")
    assert table.column_names == ["id", "a", "b", "cosine", "js", "truncated", "error"]
    assert table["id"].to_pylist() == ["0", "1"]
    assert table["a"].to_pylist() == [a for a, _ in PAIRS[:2]]


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_the_results_are_of_the_inputs_kind(tmp_path: Path, run: Run, kind: str) -> None:
    source = tmp_path / f"x.{kind}"
    source.write_text("a,b\na dog,a dog\n" if kind == "csv" else '{"a": "a dog", "b": "a dog"}')
    run(source, tmp_path / "out", parts=None)
    assert names(tmp_path / "out") == ["_score.json", f"part-00001-of-00001.{kind}"]


def test_what_was_finished_is_not_done_again(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "x.parquet")
    run(source, tmp_path / "whole")
    do = Worker.__call__
    done: list[str] = []

    def until_the_second(worker: Worker, shard: Any) -> Any:
        if len(done) == 1:
            # As a kill in the middle of the second would leave it.
            (tmp_path / "out.partial" / f".{shard.part}.1.part").write_text("half")
            raise KeyboardInterrupt
        done.append(shard.part)
        return do(worker, shard)

    monkeypatch.setattr(Worker, "__call__", until_the_second)
    with pytest.raises(KeyboardInterrupt):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists(), "it would look complete"
    monkeypatch.setattr(Worker, "__call__", lambda worker, s: done.append(s.part) or do(worker, s))
    assert run(source, tmp_path / "out").rows == 25
    assert done == [f"part-0000{i}-of-00003.parquet" for i in (1, 2, 3)]
    assert names(tmp_path / "out") == names(tmp_path / "whole")
    assert parquet.read_table(tmp_path / "out").equals(parquet.read_table(tmp_path / "whole"))
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"metrics": ("js",)}, r"was begun with --metrics cosine,js: go on with the same, or"),
        ({"columns": ("b", "a")}, r"--columns a,b:"),
        ({"keep": ("id",)}, r"--keep of nothing:"),
        ({"shard_rows": 5}, r"--shard-rows 10:"),
        ({}, "other input files, or they have changed since"),
    ],
)
def test_it_goes_on_only_with_the_same(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], says: str
) -> None:
    source = write(tmp_path / "x.parquet")

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "__call__", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(source, tmp_path / "out")
    if not changed:
        write(source, PAIRS[:20])
    with pytest.raises(LatteMixError, match=says):
        run(source, tmp_path / "out", **changed)


def test_a_damaged_plan_is_named(tmp_path: Path, run: Run) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "_plan.json").write_text("{}")
    with pytest.raises(LatteMixError, match=r"_plan.json is damaged: remove .*out.partial\.$"):
        run(write(tmp_path / "x.parquet"), tmp_path / "out")


def test_rows_without_words_cost_only_themselves(tmp_path: Path, run: Run) -> None:
    rows = [("a dog", "a dog"), ("", "a dog"), ("a dog", " "), ("a dog", "dog " * 40)]
    tally = run(write(tmp_path / "x.parquet", rows), tmp_path / "out", parts="jsonl")
    reason = "a is empty: the model finds no words in it."
    assert (tally.rows, tally.refused, tally.truncated) == (4, 2, 1)
    assert tally.first_reason == f"{tmp_path / 'x.parquet'}, row 2: {reason}"
    lines = (tmp_path / "out" / "part-00001-of-00001.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    assert found[0]["cosine"] == pytest.approx(1)
    assert found[1] == {"a": "", "b": "a dog", "error": reason}
    assert found[2]["error"].startswith("b is empty")
    assert (found[3]["truncated"], found[3]["js"] < 1) == (1, True)


def test_only_rows_without_words(tmp_path: Path, run: Run) -> None:
    tally = run(write(tmp_path / "x.parquet", [("", " ")] * 3), tmp_path / "out")
    assert (tally.rows, tally.refused) == (3, 3)


@pytest.mark.parametrize(
    ("rows", "changed", "says"),
    [
        ([("x", "y")] * 20 + [("x", None)], {}, r"row 21: column b is null\.$"),
        ([("x", 1)], {}, r"row 1: column b is not text\.$"),
        (PAIRS, {"columns": ("a", "c")}, r"expected columns named a, c; found a, b, id\.$"),
        (PAIRS, {"columns": ("a", "b", "c")}, "name two to compare, or one to embed"),
        (PAIRS, {"columns": ("a", "a")}, "would have two columns 'a': name others"),
        (PAIRS, {"columns": ("a", "js")}, "would have two columns 'js': name others"),
        (PAIRS, {"keep": ("error",)}, "would have two columns 'error': name others"),
        (PAIRS, {"keep": ("n",)}, r"expected columns named a, b, n; found a, b, id\.$"),
    ],
)
def test_a_mistake_is_found_before_the_work(
    tmp_path: Path, run: Run, rows: Any, changed: dict[str, Any], says: str
) -> None:
    source = write(tmp_path / "x.parquet", rows)
    with pytest.raises(LatteMixError, match=says):
        run(source, tmp_path / "out", **changed)
    assert names(tmp_path) == ["x.parquet"]


def test_a_corrupt_file_is_found_before_the_work(tmp_path: Path, run: Run) -> None:
    (tmp_path / "in").mkdir()
    write(tmp_path / "in" / "a.parquet")
    broken = write(tmp_path / "in" / "b.parquet")
    content = bytearray(broken.read_bytes())
    content[4:60] = bytes(56)  # its footer is fine
    broken.write_bytes(content)
    with pytest.raises(LatteMixError, match=r"b\.parquet cannot be read as Parquet: "):
        run(tmp_path / "in", tmp_path / "out")
    assert names(tmp_path) == ["in"]


def test_results_are_not_overwritten(tmp_path: Path, run: Run) -> None:
    source = write(tmp_path / "x.parquet")
    run(source, tmp_path / "out")
    with pytest.raises(LatteMixError, match=r"out is there already: remove it, or choose another"):
        run(source, tmp_path / "out")
    with pytest.raises(LatteMixError, match="there is no directory"):
        run(source, tmp_path / "none" / "out")


def test_a_metric_that_the_model_lacks_is_named(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Artifact, "centre", None)
    with pytest.raises(LatteMixError, match="'centred' needs a model that carries a centre"):
        run(write(tmp_path / "x.parquet"), tmp_path / "out", metrics=("centred",))
    assert names(tmp_path) == ["x.parquet"]


def test_results_are_not_written_into_what_is_read(tmp_path: Path, run: Run) -> None:
    write(tmp_path / "x.parquet")
    with pytest.raises(LatteMixError, match=r"is in .*, which is read: choose another place"):
        run(tmp_path, tmp_path / "out")


def test_two_runs_do_not_share_a_folder(tmp_path: Path, run: Run) -> None:
    source, output = write(tmp_path / "x.parquet"), tmp_path / "out"
    with Folder(output).held(), pytest.raises(LatteMixError, match="Another run is at work in"):
        run(source, output)
    assert run(source, output).rows == 25, "it is free again"


@pytest.mark.parametrize("damage", ["part", "tally"])
def test_a_shard_that_was_lost_is_done_again(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    source = write(tmp_path / "x.parquet")
    with monkeypatch.context() as stopped:
        stopped.setattr(Folder, "finish", lambda *_: None)
        run(source, tmp_path / "out")
    if damage == "part":
        (tmp_path / "out.partial/part-00002-of-00003.parquet").unlink()
    else:
        (tmp_path / "out.partial/_part-00002-of-00003.parquet.json").write_text("")
    assert run(source, tmp_path / "out").rows == 25
    assert parquet.read_table(tmp_path / "out").num_rows == 25


def test_a_stop_while_finishing_leaves_the_whole(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "x.parquet")

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(Path, "rename", stopped)
        with pytest.raises(KeyboardInterrupt):
            run(source, tmp_path / "out")
    with pytest.raises(LatteMixError, match="was begun with --metrics cosine,js"):
        run(source, tmp_path / "out", metrics=("js",))
    assert run(source, tmp_path / "out").rows == 25


def test_a_file_that_changes_meanwhile_gives_no_results(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "x.parquet")
    do = Worker.__call__

    def then_changed(worker: Worker, shard: Any) -> Any:
        tally = do(worker, shard)
        write(source, PAIRS[::-1])
        return tally

    monkeypatch.setattr(Worker, "__call__", then_changed)
    with pytest.raises(LatteMixError, match="was changed while it was being read: begin anew"):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_many_different_empty_texts_are_found_at_once(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    encode = Encoder.encode

    def counted(encoder: Encoder, texts: Sequence[str]) -> Any:
        calls.append(len(texts))
        return encode(encoder, texts)

    monkeypatch.setattr(Encoder, "encode", counted)
    rows = [("a dog", " " * i) for i in range(50)]
    assert run(write(tmp_path / "x.parquet", rows), tmp_path / "out", shard_rows=50).refused == 50
    assert calls == [51, 1]


def test_another_model_under_the_name_is_refused(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.score.worker.digest", lambda _: "another")
    with pytest.raises(LatteMixError, match="holds another tiny:fp32 here than where the work"):
        run(write(tmp_path / "x.parquet"), tmp_path / "out")


def test_a_file_that_shrinks_meanwhile_is_refused(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "x.parquet")
    do = Worker.__call__

    def after_a_change(worker: Worker, shard: Any) -> Any:
        write(source, PAIRS[:15])
        return do(worker, shard)

    monkeypatch.setattr(Worker, "__call__", after_a_change)
    with pytest.raises(LatteMixError, match="was changed while it was being read"):
        run(source, tmp_path / "out")
    assert not [name for name in names(tmp_path / "out.partial") if "00002" in name]


@pytest.mark.parametrize("refused", [False, True])
def test_the_command_says_what_it_did(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    store: Store,
    refused: bool,
) -> None:
    rows = [("a dog", "dog " * 40), ("a dog", "" if refused else "a dog")]
    source, output = write(tmp_path / "x.parquet", rows), tmp_path / "out"
    where = ["--store", str(store.root), "--model", "tiny"]
    monkeypatch.setattr(sys, "argv", ["lattemix", "score", str(source), str(output), *where])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == int(refused)
    said = capsys.readouterr().err.splitlines()
    assert said[:2] == [
        f"{output} is complete: 2 rows.",
        "Note: 1 sentences were longer than the model reads, and cut.",
    ]
    assert (f"refused, the first because: {source}, row 2: b is empty" in said[-1]) == refused
