"""Interrupted, concurrent and resumed runs, and inputs that change."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from app.settings import Settings
from lattemix.bulk.runners import LocalRunner
from lattemix.bulk.score.folder import Folder
from lattemix.bulk.score.worker import Worker
from model_store import LatteMixError, Manifest, Store
from tests.lattemix.bulk.score.conftest import PAIRS, Run, names, write


def test_resumes_after_the_last_finished_shard(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "x.parquet")
    run(source, tmp_path / "whole")
    do = Worker.__call__
    done: list[str] = []

    def until_the_second(worker: Worker, shard: Any) -> Any:
        if len(done) == 1:
            # What a kill during the second shard would leave.
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
    ("changes", "message"),
    [
        ({"metrics": ("js",)}, r"was started with --metrics cosine,js: continue with the same, or"),
        ({"columns": ("b", "a")}, r"--columns a,b:"),
        ({"keep": ("id",)}, r"no --keep:"),
        ({"shard_rows": 5}, r"--shard-rows 10:"),
        ({}, "other input files, or they have changed since"),
    ],
)
def test_resumes_only_with_equal_arguments(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], message: str
) -> None:
    source = write(tmp_path / "x.parquet")

    def stopped(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "__call__", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(source, tmp_path / "out")
    if not changes:
        write(source, PAIRS[:20])
    with pytest.raises(LatteMixError, match=message):
        run(source, tmp_path / "out", **changes)


def test_names_a_damaged_plan(tmp_path: Path, run: Run) -> None:
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "_plan.json").write_text("{}")
    with pytest.raises(LatteMixError, match=r"_plan.json is damaged: remove .*out.partial\.$"):
        run(write(tmp_path / "x.parquet"), tmp_path / "out")


def test_rejects_an_existing_output(tmp_path: Path, run: Run) -> None:
    source = write(tmp_path / "x.parquet")
    run(source, tmp_path / "out")
    with pytest.raises(LatteMixError, match=r"out exists: remove it, or choose another"):
        run(source, tmp_path / "out")
    with pytest.raises(LatteMixError, match="there is no directory"):
        run(source, tmp_path / "none" / "out")


def test_rejects_a_concurrent_run(tmp_path: Path, run: Run) -> None:
    source, output = write(tmp_path / "x.parquet"), tmp_path / "out"
    with Folder(output).locked(), pytest.raises(LatteMixError, match="Another run is writing to"):
        run(source, output)
    assert run(source, output).rows == 25, "the lock is released"


@pytest.mark.parametrize("damage", ["part", "tally"])
def test_computes_lost_shards_again(
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


def test_resumes_after_an_interruption_of_the_last_step(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "x.parquet")

    def stopped(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as context:
        context.setattr(Path, "rename", stopped)
        with pytest.raises(KeyboardInterrupt):
            run(source, tmp_path / "out")
    for metrics in (("js",), None):
        with pytest.raises(LatteMixError, match="was started with --metrics cosine,js"):
            run(source, tmp_path / "out", metrics=metrics)
    assert run(source, tmp_path / "out").rows == 25


@pytest.mark.parametrize("rows", [PAIRS[::-1], PAIRS[:15]], ids=["as many rows", "fewer rows"])
def test_rejects_input_that_changes_during_the_run(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[str, str]]
) -> None:
    source = write(tmp_path / "x.parquet")
    do = Worker.__call__

    def after_a_change(worker: Worker, shard: Any) -> Any:
        write(source, rows)
        return do(worker, shard)

    monkeypatch.setattr(Worker, "__call__", after_a_change)
    with pytest.raises(LatteMixError, match="changed while it was read"):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_names_a_changed_model_before_the_metric_it_recommends(
    tmp_path: Path, run: Run, private_store: Store, settings: Settings
) -> None:
    source = write(tmp_path / "x.parquet")
    private = settings.model_copy(update={"store": private_store.root})
    options = {"metrics": None, "start_runner": lambda: LocalRunner(private)}
    with pytest.MonkeyPatch.context() as stopped:
        stopped.setattr(Folder, "finish", lambda *_: None)
        run(source, tmp_path / "out", **options)
    path = private_store.root / "tiny/fp32/manifest.json"
    manifest = json.loads(path.read_text())
    manifest["recommended_metric"] = "js"
    del manifest["files"]["centre.npy"]
    path.write_text(json.dumps(manifest))
    with pytest.raises(LatteMixError, match="was started with another tiny:fp32 in the store"):
        run(source, tmp_path / "out", **options)


def test_rejects_another_model_of_the_same_name(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    fingerprints = iter(["of the task", "of the worker"])
    monkeypatch.setattr(Manifest, "fingerprint", property(lambda _: next(fingerprints)))
    with pytest.raises(LatteMixError, match="has another tiny:fp32 than the task"):
        run(write(tmp_path / "x.parquet"), tmp_path / "out")
