"""The files of an input, and their state."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from model_store import LatteMixError


class Record(BaseModel):
    """A part of a plan."""

    model_config = ConfigDict(frozen=True)


class Source(Record):
    """An input file and its state when the plan was made."""

    path: str
    bytes: int
    modified: int  # ns

    @classmethod
    def at(cls, path: Path) -> "Source":
        """Return the current state of a file."""
        status = path.stat()
        return cls(path=str(path.absolute()), bytes=status.st_size, modified=status.st_mtime_ns)


def list_sources(path: Path) -> tuple[Source, ...]:
    """Return a file, or all files of a directory and its subdirectories, by name."""
    sources = tuple(Source.at(file) for file in (_files(path) if path.is_dir() else [path]))
    if not sources:
        raise LatteMixError(f"{path} holds no files.")
    return sources


def _files(path: Path) -> Iterator[Path]:
    """Yield files that are not hidden; other tools mark their metadata with . or _."""
    for file in sorted(path.iterdir()):
        if file.name[0] in "._":
            continue
        if not file.is_dir():
            yield file
        elif file.is_symlink():  # may lead outside the directory, or in a circle
            raise LatteMixError(f"{file} is a link to a directory: name that directory itself.")
        else:
            yield from _files(file)
