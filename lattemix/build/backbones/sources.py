"""Open a backbone by name: a pinned package, a directory, a file of word vectors or a hub id."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lattemix.build.backbones import hub, words
from lattemix.build.backbones.checkpoint import BackboneError, Checkpoint
from lattemix.build.backbones.packages import PINNED, unpacked

_HELP = (
    "--backbone takes a directory, a file of word vectors, a hub id such as "
    f"sentence-transformers/all-MiniLM-L6-v2, or one of {', '.join(PINNED)}."
)


@contextmanager
def open_backbone(reference: str) -> Iterator[Checkpoint]:
    """Yield a backbone, given a pinned name, a directory, a file of word vectors, or a hub id."""
    if package := PINNED.get(reference):
        with unpacked(package) as directory:
            if package.word_vectors is None:
                yield Checkpoint.read(directory, reference)
            else:
                with _converted(directory / package.word_vectors, reference) as checkpoint:
                    yield checkpoint
    elif reference and (path := Path(os.path.expanduser(reference))).is_dir():
        yield Checkpoint.read(path)
    elif reference and path.is_file():
        with _converted(path, path.name) as checkpoint:
            yield checkpoint
    else:
        yield Checkpoint.read(_download(reference), reference)


def _download(reference: str) -> Path:
    """Download a hub id, unless it has the suffix of a file of word vectors."""
    if reference.endswith(words.SUFFIXES):
        raise BackboneError(f"There is no backbone {reference!r}. {_HELP}")
    try:
        return hub.download(reference)
    except hub.HubError as error:
        local = "There is no directory or file of that name."
        raise BackboneError(f"{error} {local} {_HELP}") from error


@contextmanager
def _converted(path: Path, name: str) -> Iterator[Checkpoint]:
    """Convert a file of word vectors to a backbone in a temporary directory."""
    with tempfile.TemporaryDirectory(prefix="lattemix-") as temporary:
        words.convert(path, Path(temporary))
        yield Checkpoint.read(Path(temporary), name)
