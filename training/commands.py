"""Commands for the user to run next, quoted for the shell."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from model_store.manifest import NAME_PATTERN


def resume_command(saved: bool) -> str:
    """The command that resumes this process's run: the same one, but not from the start again.

    Args:
        saved: whether there is a checkpoint, which `--restart` would remove.
    """
    dropped = ("--restart",) if saved else ()
    arguments = [argument for argument in sys.argv[1:] if argument not in dropped]
    return shlex.join([*_launcher(), *_program(), *arguments])


def export_commands(head: Path, backbone: str | None = None) -> tuple[str, str]:
    """The commands that export a head and serve the model.

    Args:
        head: the head's directory, which also names the model if it can.
        backbone: the source of the backbone, if the head's record of it does not suffice.
    """
    name = directory_name = head.resolve().name
    export = [*_program(), "export", "--head", str(head)]
    if not re.fullmatch(NAME_PATTERN, directory_name):
        name = re.sub(r"[^A-Za-z0-9]+", "-", directory_name)[:64].strip("-") or "mine"
        export += ["--name", name]
    if backbone is not None:
        export += ["--backbone", backbone]
    serve = [_short(_started().with_name("lattemix")), "serve", "--model", name]
    return shlex.join(export), shlex.join(serve)


def _started() -> Path:
    """The script that was started, or the interpreter if it was `python -m training`."""
    script = Path(sys.argv[0])
    return Path(sys.executable) if script.name == "__main__.py" else script


def _program() -> list[str]:
    started = _started()
    is_module = started == Path(sys.executable)
    return [_short(started), *(["-m", "training"] if is_module else [])]


def _launcher() -> list[str]:
    """What starts several processes on one machine, without the `python` it starts itself."""
    processes = os.environ.get("LOCAL_WORLD_SIZE")
    return ["torchrun", "--nproc-per-node", processes, "--no-python"] if processes else []


def _short(program: Path) -> str:
    """The program's name, if the shell finds it by that; else its path."""
    found = shutil.which(program.name)
    # Not resolved: the `python` of a virtual environment is a link to another interpreter.
    is_same = found is not None and os.path.abspath(found) == os.path.abspath(program)
    return program.name if is_same else str(program)
