"""Interrupted runs, damaged and full work directories, and other thresholds."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lattemix.bulk import folder
from lattemix.bulk.dedup import compare, files, output, rows, vectors
from lattemix.bulk.folder import locked
from model_store import LatteMixError
from tests.lattemix.bulk.dedup.conftest import (
    DEFAULTS,
    Calls,
    Run,
    duplicated_texts,
    files_below,
    random_texts,
    variant,
    write_lines,
)

pytestmark = pytest.mark.usefixtures("small_parts")

# The last 40 are more near-duplicates than are found at once.
TEXTS = [*duplicated_texts(60), *(variant(random_texts(1, 9)[0], n) for n in range(40))]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "x.txt", TEXTS)


def interrupted_at(call: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """Interrupt a call of a function, the first being 1."""
    count = 0

    def wrapper(*arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count == call:
            raise KeyboardInterrupt
        return function(*arguments, **options)

    return wrapper


STAGES: dict[str, tuple[Any, str, int]] = {
    "reading rows": (rows.RowsWriter, "add", 20),
    "writing rows": (rows, "write_arrays", 1),
    "writing the plan": (folder, "write_text", 1),
    "encoding a sample": (vectors.VectorModel, "encode", 2),
    "writing the space": (vectors, "write_arrays", 1),
    "encoding": (vectors.VectorsWorker, "__call__", 3),
    "between vectors and their result": (vectors, "write_text", 3),
    "writing what a round compares": (compare, "write_arrays", 1),
    "comparing": (compare.CompareWorker, "__call__", 3),
    "between pairs and their result": (compare, "write_text", 3),
    "writing kept rows": (output, "_copy_lines", 1),
    "writing dropped rows": (output.OutputFiles, "write_dropped", 1),
    "writing the summary": (files, "write_text", 1),
    "renaming the output": (Path, "rename", 1),
}


@pytest.mark.parametrize("stage", STAGES)
def test_an_interrupted_run_continues(
    tmp_path: Path, run: Run, source: Path, calls: Calls, stage: str
) -> None:
    run(source, tmp_path / "whole")
    every_vector, every_range = sorted(calls.vectors), sorted(calls.compare)
    calls.clear()
    target, name, call = STAGES[stage]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, name, interrupted_at(call, getattr(target, name)))
        with pytest.raises(KeyboardInterrupt):
            run(source, tmp_path / "out")
    assert not (tmp_path / "out").exists(), "it would look complete"
    run(source, tmp_path / "out")
    assert files_below(tmp_path / "out") == files_below(tmp_path / "whole")
    assert (sorted(calls.vectors), sorted(calls.compare)) == (every_vector, every_range)
    visible = [path.name for path in tmp_path.iterdir() if "static" not in path.name]
    assert sorted(visible) == ["out", "out.work", "whole", "whole.work", "x.txt"]


def test_an_interruption_of_the_second_round_continues(
    tmp_path: Path, run: Run, source: Path, calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(source, tmp_path / "whole")
    every_range = sorted(calls.compare)
    assert len({name for name, _ in every_range}) > 1, "else there is no second round"
    counted = compare.CompareWorker.__call__
    calls.clear()

    def in_the_second_round(worker: Any, part: compare.CellRange) -> Any:
        if calls.compare and part.round != calls.compare[0][0]:
            raise KeyboardInterrupt
        return counted(worker, part)

    monkeypatch.setattr(compare.CompareWorker, "__call__", in_the_second_round)
    with pytest.raises(KeyboardInterrupt):
        run(source, tmp_path / "out")
    assert len({name for name, _ in calls.compare}) == 1
    monkeypatch.setattr(compare.CompareWorker, "__call__", counted)
    run(source, tmp_path / "out")
    assert sorted(calls.compare) == every_range
    assert files_below(tmp_path / "out") == files_below(tmp_path / "whole")


def test_interrupted_reading_leaves_nothing_behind(
    tmp_path: Path, run: Run, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows.RowsWriter, "add", interrupted_at(20, rows.RowsWriter.add))
    with pytest.raises(KeyboardInterrupt):
        run(source, tmp_path / "out")
    assert [*tmp_path.iterdir()] == [source]


@pytest.mark.parametrize("content", [b"", b'{"texts": 16, "rej', b"\x00\xff" * 20])
def test_computes_parts_with_damaged_results_again(
    tmp_path: Path, run: Run, source: Path, calls: Calls, content: bytes
) -> None:
    run(source, tmp_path / "whole")
    results = sorted((tmp_path / "whole.work").rglob("pairs-00001.json"))
    first_round = calls.compare[0][0]
    (damaged,) = [path for path in results if path.parent.name == first_round]
    damaged.write_bytes(content)
    (tmp_path / "whole.work/vectors-00002.json").write_bytes(content)
    calls.clear()
    run(source, tmp_path / "out", work=tmp_path / "whole.work")
    assert (calls.vectors, calls.compare) == ([2], [(first_round, 1)])
    assert files_below(tmp_path / "out") == files_below(tmp_path / "whole")


def test_rejects_a_run_in_the_work_directory_of_another(
    tmp_path: Path, run: Run, source: Path
) -> None:
    message = r"Another run is writing to .*out\.work\.$"
    with locked(tmp_path / "out.work"), pytest.raises(LatteMixError, match=message):
        run(source, tmp_path / "out")
    assert run(source, tmp_path / "out").rows == len(TEXTS), "the lock is released"


def test_output_that_appears_meanwhile_is_not_replaced(
    tmp_path: Path, run: Run, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = output.OutputFiles.write_dropped

    def meanwhile(*arguments: Any) -> None:
        write(*arguments)
        (tmp_path / "out").mkdir()

    monkeypatch.setattr(output.OutputFiles, "write_dropped", meanwhile)
    with pytest.raises(LatteMixError, match="out exists: remove it, or choose another"):
        run(source, tmp_path / "out")
    assert [*(tmp_path / "out").iterdir()] == []


# Run by another process, which kills itself.
KILLED = """
import os, signal, sys
from importlib import import_module
from lattemix.bulk.dedup import cells, compare, vectors

vectors._SHARD = compare._TEXTS = 16
cells._SINGLE_CELL = 8
module, target, name, call = sys.argv[1:5]
owner = import_module(module)
owner = getattr(owner, target) if target else owner
function, calls = getattr(owner, name), []

def killed(*arguments, **options):
    calls.append(0)
    if len(calls) == int(call):
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*arguments, **options)

setattr(owner, name, killed)
from lattemix.cli import main
sys.argv = ["lattemix", *sys.argv[5:]]
main()
"""


@pytest.mark.parametrize(
    ("module", "target", "name", "call"),
    [
        ("lattemix.bulk.dedup.rows", "RowsWriter", "add", 50),
        ("lattemix.bulk.dedup.vectors", "", "write_text", 3),
        ("lattemix.bulk.dedup.compare", "", "write_text", 4),
        ("lattemix.bulk.dedup.files", "", "write_text", 1),
    ],
)
def test_a_killed_process_is_resumed(
    tmp_path: Path,
    run: Run,
    source: Path,
    model_settings: Any,
    calls: Calls,
    module: str,
    target: str,
    name: str,
    call: int,
) -> None:
    options = [f"--{key}={value}" for key, value in DEFAULTS.items()]
    arguments = ["dedup", str(source), str(tmp_path / "out"), *options]
    arguments += ["--store", str(model_settings.store)]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, module, target, name, str(call), *arguments],
        capture_output=True,
        env={**os.environ, "LATTEMIX_PROVIDER": "cpu"},
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    assert not (tmp_path / "out").exists()
    run(source, tmp_path / "whole")
    total = len(calls.vectors), len(calls.compare)
    calls.clear()
    run(source, tmp_path / "out")
    assert files_below(tmp_path / "out") == files_below(tmp_path / "whole")
    done = total[0] - len(calls.vectors), total[1] - len(calls.compare)
    last = total if module.endswith("files") else (total[0], 3)
    assert done == {"rows": (0, 0), "vectors": (2, 0)}.get(module.split(".")[-1], last)


def test_leftovers_of_a_killed_process_of_this_id_are_replaced(
    tmp_path: Path, run: Run, source: Path
) -> None:
    """In a container, every run may have the same process id."""
    leftover = tmp_path / f".out.{os.getpid()}"
    leftover.mkdir()
    (leftover / "kept.txt").write_text("half")
    run(source, tmp_path / "whole")
    run(source, tmp_path / "out")
    assert files_below(tmp_path / "out") == files_below(tmp_path / "whole")
    assert not leftover.exists()


FULL = [
    *["texts.bin", "rows.npz", "_plan.json", "space.npz", "vectors-00001.npy"],
    *["vectors-00001.json", "state.npz", "pairs-00001.npz", "pairs-00001.json"],
    *["kept.txt", "dropped.jsonl", "summary.json"],
]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("name", FULL)
def test_a_full_disk_is_named_and_leaves_no_output(
    tmp_path: Path, run: Run, source: Path, name: str
) -> None:
    run(source, tmp_path / "whole")
    open_path = Path.open

    def full(path: Path, mode: str = "r", **options: Any) -> Any:
        is_full = path.name.startswith(f".{name}.") and "w" in mode
        return open_path(Path("/dev/full") if is_full else path, mode, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "open", full)
        with pytest.raises(OSError, match="No space left on device") as raised:
            run(source, tmp_path / "out")
    assert raised.value.errno == errno.ENOSPC
    assert Path(raised.value.filename).name == name
    assert not (tmp_path / "out").exists()
    assert not [*tmp_path.rglob(".*")], "no temporary files"
    run(source, tmp_path / "out")
    assert files_below(tmp_path / "out") == files_below(tmp_path / "whole")


# Other thresholds and options, with the same work directory


@pytest.mark.parametrize("options", [{"threshold": 0.96}, {"linkage": "complete"}, {}])
def test_other_thresholds_compute_nothing_again(
    tmp_path: Path, run: Run, source: Path, calls: Calls, options: dict[str, Any]
) -> None:
    first = {"threshold": 0.8, "floor": 0.8}
    texts = TEXTS[:-40]  # crowded texts are compared again, with those that the threshold keeps
    write_lines(source, texts)
    run(source, tmp_path / "first", **first)
    calls.clear()
    run(source, tmp_path / "again", work=tmp_path / "first.work", **(first | options))
    assert (calls.vectors, calls.compare) == ([], [])
    run(source, tmp_path / "fresh", **(first | options))
    assert files_below(tmp_path / "again") == files_below(tmp_path / "fresh")
    if "threshold" in options:
        assert files_below(tmp_path / "again") != files_below(tmp_path / "first")


def test_another_threshold_gives_the_rows_of_a_fresh_run_if_texts_are_crowded(
    tmp_path: Path, run: Run, source: Path, calls: Calls
) -> None:
    run(source, tmp_path / "first", threshold=0.8, floor=0.8)
    calls.clear()
    run(source, tmp_path / "again", work=tmp_path / "first.work", threshold=0.95, floor=0.8)
    assert calls.vectors == []
    run(source, tmp_path / "fresh", threshold=0.95, floor=0.8)
    assert files_below(tmp_path / "again") == files_below(tmp_path / "fresh")


@pytest.mark.parametrize("keep", ["longest", "shortest"])
def test_another_rule_computes_no_vectors_again(
    tmp_path: Path, run: Run, source: Path, calls: Calls, keep: str
) -> None:
    run(source, tmp_path / "first")
    calls.clear()
    run(source, tmp_path / "again", work=tmp_path / "first.work", keep=keep)
    assert calls.vectors == []
    run(source, tmp_path / "fresh", keep=keep)
    assert files_below(tmp_path / "again") == files_below(tmp_path / "fresh")


@pytest.mark.parametrize(
    "options", [{"floor": 0.9}, {"rescore": "tiny", "threshold": 0.7, "floor": 0.95}]
)
def test_another_floor_or_second_model_compares_again_with_the_same_vectors(
    tmp_path: Path, run: Run, source: Path, calls: Calls, options: dict[str, Any]
) -> None:
    first = {"metric": None, "threshold": 0.97}
    run(source, tmp_path / "first", **first)
    calls.clear()
    run(source, tmp_path / "again", work=tmp_path / "first.work", **(first | options))
    assert calls.vectors == []
    assert calls.compare
    again = [*calls.compare]
    calls.clear()
    run(source, tmp_path / "fresh", **(first | options))
    assert {*again} <= {*calls.compare}, "rounds of the same floor are not computed again"
    assert files_below(tmp_path / "again") == files_below(tmp_path / "fresh")
    calls.clear()
    run(source, tmp_path / "third", work=tmp_path / "first.work", **first)
    assert (calls.vectors, calls.compare) == ([], []), "the first comparison is still there"
    assert files_below(tmp_path / "third") == files_below(tmp_path / "first")
