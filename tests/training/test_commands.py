import shlex
import sys
from pathlib import Path

import pytest

from training.commands import export_commands, resume_command


@pytest.fixture(autouse=True)
def _started_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "argv", ["lattemix-train", "train", "--out", "my head", "--restart"])


def test_a_run_is_resumed_by_the_same_command_without_restart() -> None:
    assert resume_command(saved=True) == "lattemix-train train --out 'my head'"
    assert resume_command(saved=False) == "lattemix-train train --out 'my head' --restart"


def test_a_program_outside_the_path_is_named_by_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [".venv/bin/lattemix-train", "train"])
    assert resume_command(saved=True) == ".venv/bin/lattemix-train train"
    assert export_commands(Path("heads/mine")) == (
        ".venv/bin/lattemix-train export --head heads/mine",
        ".venv/bin/lattemix serve --model mine",
    )


def test_a_program_in_the_path_is_named_shortly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = tmp_path / "lattemix-train"
    script.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "argv", [str(script), "train"])
    assert resume_command(saved=True) == "lattemix-train train"


def test_a_module_is_run_again_as_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/src/training/__main__.py", "train", "--seed", "1"])
    monkeypatch.setattr(sys, "executable", "/venv/bin/python")
    assert resume_command(saved=True) == "/venv/bin/python -m training train --seed 1"
    assert export_commands(Path("mine")) == (
        "/venv/bin/python -m training export --head mine",
        "/venv/bin/lattemix serve --model mine",
    )
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    launcher = ["torchrun", "--nproc-per-node", "4", "--no-python"]
    assert shlex.split(resume_command(saved=True))[:4] == launcher


def test_the_interpreter_of_an_inactive_environment_is_named_by_its_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its `python` is a link to the very one that the shell would find."""
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
def test_a_model_has_a_valid_name(directory: str, name: str) -> None:
    export, serve = export_commands(Path("heads") / directory, backbone="./my bert")
    assert f"--name {name} --backbone './my bert'" in export
    assert serve == f"lattemix serve --model {name}"
