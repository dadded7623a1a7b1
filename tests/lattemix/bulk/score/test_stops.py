"""What a stop, a second run or a change meanwhile leaves behind, and how work goes on."""

from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from lattemix.bulk.score.folder import Folder
from lattemix.bulk.score.worker import Worker
from model_store import LatteMixError
from tests.lattemix.bulk.score.conftest import PAIRS, Run, names, write


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


def test_results_are_not_overwritten(tmp_path: Path, run: Run) -> None:
    source = write(tmp_path / "x.parquet")
    run(source, tmp_path / "out")
    with pytest.raises(LatteMixError, match=r"out is there already: remove it, or choose another"):
        run(source, tmp_path / "out")
    with pytest.raises(LatteMixError, match="there is no directory"):
        run(source, tmp_path / "none" / "out")


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


@pytest.mark.parametrize("rows", [PAIRS[::-1], PAIRS[:15]], ids=["as many rows", "fewer rows"])
def test_a_file_that_changes_meanwhile_gives_no_results(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[str, str]]
) -> None:
    source = write(tmp_path / "x.parquet")
    do = Worker.__call__

    def after_a_change(worker: Worker, shard: Any) -> Any:
        write(source, rows)
        return do(worker, shard)

    monkeypatch.setattr(Worker, "__call__", after_a_change)
    with pytest.raises(LatteMixError, match="was changed while it was being read"):
        run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_another_model_under_the_name_is_refused(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lattemix.bulk.score.worker.digest", lambda _: "another")
    with pytest.raises(LatteMixError, match="holds another tiny:fp32 here than where the work"):
        run(write(tmp_path / "x.parquet"), tmp_path / "out")
