import errno
from pathlib import Path

import numpy as np
import pytest
from pydantic import BaseModel

from lattemix.bulk.folder import (
    LOCK,
    PLAN,
    atomic,
    check_new,
    check_same,
    locked,
    read_plan,
    read_result,
    task_difference,
    write_arrays,
    write_text,
)
from model_store import LatteMixError


class Task(BaseModel):
    model: str = "tiny"
    columns: tuple[str, ...] = ("a", "b")
    keep: str = ""
    shard_rows: int = 10


def test_a_file_gets_its_name_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "x.bin"
    path.write_bytes(b"before")
    with atomic(path) as file:
        file.write(b"after")
        assert path.read_bytes() == b"before"
    assert path.read_bytes() == b"after"
    assert [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("error", [KeyboardInterrupt, LatteMixError, OSError])
def test_a_failure_leaves_the_file_as_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "x.bin"
    write_text(path, "before")

    def fail() -> None:
        with atomic(path) as file:
            file.write(b"after")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_text() == "before"
    assert [*tmp_path.iterdir()] == [path]


def test_an_error_without_a_file_names_the_one_being_written(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full") as raised, atomic(tmp_path / "x.bin"):
        raise OSError(errno.ENOSPC, "full")
    assert raised.value.filename == str(tmp_path / "x.bin")
    with pytest.raises(FileNotFoundError) as missing, atomic(tmp_path / "x.bin"):
        (tmp_path / "other").read_text()
    assert missing.value.filename == str(tmp_path / "other")


def test_writes_arrays(tmp_path: Path) -> None:
    write_arrays(tmp_path / "x.npz", a=np.arange(3), b=np.empty(0, np.int8))
    with np.load(tmp_path / "x.npz") as arrays:
        assert arrays["a"].tolist() == [0, 1, 2]
        assert (arrays["b"].dtype, len(arrays["b"])) == (np.int8, 0)


@pytest.mark.parametrize("content", ["", "{", '{"shard_rows": "many"}', "\x00"])
def test_a_damaged_result_is_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "x.json"
    assert read_result(path, Task) is None
    path.write_text(content)
    assert read_result(path, Task) is None
    write_text(path, Task(keep="id").model_dump_json())
    assert read_result(path, Task) == Task(keep="id")


def test_makes_a_plan_once(tmp_path: Path) -> None:
    assert read_plan(tmp_path, lambda: Task(keep="id"), Task) == Task(keep="id")
    assert read_plan(tmp_path, Task, Task) == Task(keep="id")
    (tmp_path / PLAN).write_text("")
    with pytest.raises(LatteMixError, match=rf"{PLAN} is damaged: remove {tmp_path}\.$"):
        read_plan(tmp_path, Task, Task)


def test_a_lock_excludes_other_runs(tmp_path: Path) -> None:
    directory = tmp_path / "out"
    with locked(directory):
        with pytest.raises(LatteMixError, match="Another run is writing to"), locked(directory):
            pass
        assert (directory / LOCK).exists(), "the other run does not remove it"
    assert not directory.exists(), "it was empty"


def test_a_directory_with_a_plan_stays(tmp_path: Path) -> None:
    with locked(tmp_path / "out"):
        write_text(tmp_path / "out" / PLAN, "{}")
    assert (tmp_path / "out" / PLAN).exists()
    with locked(tmp_path / "out"):
        pass


def test_a_directory_with_other_files_stays(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("a")
    with locked(tmp_path):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["x.txt"]


def test_rejects_an_output_that_exists_or_has_no_parent(tmp_path: Path) -> None:
    check_new(tmp_path / "new")
    with pytest.raises(LatteMixError, match="exists: remove it, or choose another"):
        check_new(tmp_path)
    with pytest.raises(LatteMixError, match=r"there is no directory .*none\.$"):
        check_new(tmp_path / "none/new")


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        ({}, None),
        ({"columns": ("b",)}, "--columns a,b"),
        ({"shard_rows": 5, "columns": ("b",)}, "--columns a,b"),
        ({"shard_rows": 5}, "--shard-rows 10"),
        ({"keep": "id"}, "no --keep"),
        ({"model": "other"}, "another model"),
    ],
)
def test_describes_the_first_difference_as_an_option(
    tmp_path: Path, changes: dict[str, object], difference: str | None
) -> None:
    def special(name: str, planned: object) -> str | None:
        return "another model" if (name, planned) == ("model", "tiny") else None

    assert task_difference(Task(), Task().model_copy(update=changes), special) == difference
    if difference is None:
        check_same(tmp_path, difference)
    else:
        with pytest.raises(LatteMixError, match=f"was started with {difference}: continue with"):
            check_same(tmp_path, difference)
