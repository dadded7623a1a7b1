"""Where frozen backbones come from: a pinned package, files of the user's, or the hub."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from training.backbones import words
from training.backbones.checkpoint import CONFIG, TOKENIZER, WEIGHTS, BackboneError, Checkpoint
from training.backbones.packages import PINNED, unpacked


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
    elif (path := Path(os.path.expanduser(reference))).is_dir():
        yield Checkpoint.read(path)
    elif path.is_file():
        with _converted(path, path.name) as checkpoint:
            yield checkpoint
    elif reference.count("/") == 1 and not reference.startswith((".", "/", "~")):
        yield Checkpoint.read(_from_hub(reference), reference)
    else:
        raise BackboneError(
            f"There is no backbone {reference!r}: give --backbone a directory, a file of word "
            "vectors, a hub id such as sentence-transformers/all-MiniLM-L6-v2, or one of "
            f"{', '.join(PINNED)}."
        )


@contextmanager
def _converted(path: Path, name: str) -> Iterator[Checkpoint]:
    """A file of word vectors as a backbone, for the time being."""
    with tempfile.TemporaryDirectory(prefix="lattemix-") as temporary:
        words.convert(path, Path(temporary))
        yield Checkpoint.read(Path(temporary), name)


def _from_hub(reference: str) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(reference, allow_patterns=[CONFIG, WEIGHTS, TOKENIZER]))
    except Exception as error:  # the hub client raises a family of errors for one fact
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BackboneError(f"Cannot fetch {reference!r} from the hub: {reason}") from error
