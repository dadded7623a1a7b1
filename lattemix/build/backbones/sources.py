"""Where frozen backbones come from: a pinned package, files of the user's, or the hub."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lattemix.build.backbones import hub, words
from lattemix.build.backbones.checkpoint import Checkpoint
from lattemix.build.backbones.packages import PINNED, unpacked
from lattemix.build.backbones.weights import BackboneError

_HELP = (
    "You can give --backbone a directory, a file of word vectors, a hub id such as "
    f"sentence-transformers/all-MiniLM-L6-v2, or one of {', '.join(PINNED)}."
)


@contextmanager
def open_backbone(reference: str) -> Iterator[Checkpoint]:
    """Yield the backbone called `reference`.

    That is a pinned name, a directory, a file of word vectors, or a hub id.
    """
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
        yield Checkpoint.read(_downloaded(reference), reference)


def _downloaded(reference: str) -> Path:
    """The directory of a hub id; a name that ends like a file of word vectors is none."""
    if reference.endswith(words.SUFFIXES):
        raise BackboneError(f"There is no backbone {reference!r}. {_HELP}")
    try:
        return hub.download(reference)
    except hub.HubError as error:
        raise BackboneError(f"{error} {_HELP}") from error


@contextmanager
def _converted(path: Path, name: str) -> Iterator[Checkpoint]:
    """A file of word vectors as a backbone, for the time being."""
    with tempfile.TemporaryDirectory(prefix="lattemix-") as temporary:
        words.convert(path, Path(temporary))
        yield Checkpoint.read(Path(temporary), name)
