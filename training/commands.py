"""Commands for the user to run next, quoted for the shell."""

import os
import re
import shlex
import shutil
import sys
from pathlib import Path

from model_store.manifest import NAME_PATTERN


def resume_command(saved: bool) -> str:
    """The command line of this process, without `--restart` if there is a checkpoint to keep.

    A run that torchrun started needs it no more: it only speeds up the encoding.
    """
    dropped = ("--restart",) if saved else ()
    arguments = [argument for argument in sys.argv[1:] if argument not in dropped]
    return shlex.join([*_program(), *arguments])


def export_commands(head: Path, backbone: str | None = None) -> tuple[str, str]:
    """The commands that export a head and serve the model.

    Args:
        head: the head's directory, which also names the model if it can.
        backbone: the source of the backbone, if the head's record of it does not suffice.
    """
    name = head.resolve().name
    export = [*_program(), "export", "--head", str(head)]
    if not re.fullmatch(NAME_PATTERN, name):
        name = re.sub(r"[^A-Za-z0-9]+", "-", name)[:64].strip("-") or "mine"
        export += ["--name", name]
    if backbone is not None:
        export += ["--backbone", backbone]
    serve = [_short(Path(_program()[0]).with_name("lattemix")), "serve", "--model", name]
    return shlex.join(export), shlex.join(serve)


def _program() -> list[str]:
    """How this process was started: as a script, or by `python -m training`."""
    script = Path(sys.argv[0])
    if script.name == "__main__.py":
        return [_short(Path(sys.executable)), "-m", "training"]
    return [_short(script)]


def _short(program: Path) -> str:
    """The program's name, if the shell finds it by that; else its path."""
    found = shutil.which(program.name)
    # Not resolved: the `python` of a virtual environment is a link to another interpreter.
    is_same = found is not None and os.path.abspath(found) == os.path.abspath(program)
    return program.name if is_same else str(program)
