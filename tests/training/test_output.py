import fcntl
import sys
from pathlib import Path

import pytest

from model_store import LatteMixError
from training.output import exclusive, export_commands, new_directory, resume_command


@pytest.fixture(autouse=True)
def _started_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", ["lattemix-train", "train", "--out", "my head", "--restart"])


def test_resume_command_omits_restart_if_there_is_a_checkpoint() -> None:
    assert resume_command(saved=True) == "lattemix-train train --out 'my head'"
    assert resume_command(saved=False) == "lattemix-train train --out 'my head' --restart"


def test_program_outside_the_path_is_named_by_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [".venv/bin/lattemix-train", "train"])
    assert resume_command(saved=True) == ".venv/bin/lattemix-train train"
    assert export_commands(Path("heads/mine")) == (
        ".venv/bin/lattemix-train export --head heads/mine",
        ".venv/bin/lattemix serve --model mine",
    )


def test_program_on_the_path_is_named_by_its_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "lattemix-train"
    script.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(script), "train"])
    assert resume_command(saved=True) == "lattemix-train train"


def test_module_is_resumed_as_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/src/training/__main__.py", "train", "--seed", "1"])
    monkeypatch.setattr(sys, "executable", "/venv/bin/python")
    assert resume_command(saved=True) == "/venv/bin/python -m training train --seed 1"
    assert export_commands(Path("mine")) == (
        "/venv/bin/python -m training export --head mine",
        "/venv/bin/lattemix serve --model mine",
    )


def test_interpreter_of_an_inactive_environment_is_named_by_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The environment's `python` is a link to the one on the PATH."""
    for directory in ("usr", "venv"):
        (tmp_path / directory).mkdir()
    (tmp_path / "usr" / "python").touch(mode=0o755)
    (tmp_path / "venv" / "python").symlink_to(tmp_path / "usr" / "python")
    monkeypatch.setenv("PATH", str(tmp_path / "usr"))
    monkeypatch.setattr(sys, "argv", ["/src/training/__main__.py", "train"])
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "python"))
    assert resume_command(saved=True) == f"{tmp_path}/venv/python -m training train"


@pytest.mark.parametrize(
    ("directory", "name"), [("my head", "my-head"), ("größe/", "gr-e"), ("é", "mine")]
)
def test_model_name_is_valid_for_any_directory_name(directory: str, name: str) -> None:
    export, serve = export_commands(Path("heads") / directory, backbone="./my bert")
    assert f"--name {name} --backbone './my bert'" in export
    assert serve == f"lattemix serve --model {name}"


def test_exclusive_rejects_a_second_run(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(LatteMixError, match="Another run is writing into"), exclusive(tmp_path):
            pass
    with exclusive(tmp_path):
        assert (tmp_path / ".lock").exists()
    assert not (tmp_path / ".lock").exists()


def test_exclusive_removes_the_directories_it_created_if_empty(tmp_path: Path) -> None:
    with exclusive(tmp_path / "heads" / "mine"):
        pass
    assert not (tmp_path / "heads").exists()
    with exclusive(tmp_path / "heads" / "mine"):
        (tmp_path / "heads" / "other").touch()
    assert [path.name for path in (tmp_path / "heads").iterdir()] == ["other"]


def test_exclusive_rejects_a_file_and_a_directory_that_cannot_be_created(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(LatteMixError, match="is a file: a head is a directory"), exclusive(file):
        pass
    inside = file / "heads" / "mine"
    with pytest.raises(LatteMixError, match=f"--out {inside} cannot be written"), exclusive(inside):
        pass


def test_new_directory_is_complete_or_absent(tmp_path: Path) -> None:
    out = tmp_path / "backbones" / "mine"
    with pytest.raises(FileExistsError), new_directory(out) as directory:
        directory.mkdir()
    assert not out.parent.exists()
    with new_directory(out) as directory:
        (directory / "config.json").touch()
        assert not out.exists()
    assert [path.name for path in out.parent.iterdir()] == ["mine"]
    assert [path.name for path in out.iterdir()] == ["config.json"]


def test_new_directory_rejects_one_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(LatteMixError, match="not an empty directory"), new_directory(tmp_path):
        pass
    assert (tmp_path / "notes.txt").exists()
