"""Teachers: sentence vectors whose cosine similarities a student learns."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from lattemix.build.backbones import Checkpoint, open_backbone
from lattemix.build.head import Floats
from lattemix.encoder import Encoder
from lattemix.settings import ModelSettings, read_settings
from model_store import LatteMixError
from model_store.manifest import MODEL, sha256_of
from training import backbones
from training.backbones import Advance
from training.readers import read

MODEL_PREFIX = "model:"
VECTORS_SUFFIX = ".npy"

_MAX_TOKENS = 256  # read by a teaching backbone; longer sentences are truncated
_SAME = 1e-6  # largest range of a coordinate that is rounding


class TeacherError(LatteMixError):
    """A teacher cannot be used."""


class Teacher(Protocol):
    """A source of sentence vectors."""

    sha256: str  # of everything that its vectors depend on

    def vectors(self, sentences: Sequence[str], advance: Advance | None = None) -> Floats:
        """The vectors of sentences: [N, D]."""
        ...


@contextmanager
def open_teacher(
    reference: str, corpus: Sequence[Path], columns: Sequence[str]
) -> Iterator[Teacher]:
    """Open a teacher: a backbone, `model:NAME` of the store, or an .npy file of vectors.

    A file has one row for each sentence of the corpus, in the order in which it is read.
    """
    if reference.endswith(VECTORS_SUFFIX):
        yield FileTeacher(Path(reference).expanduser(), read(corpus, columns))
    elif reference.startswith(MODEL_PREFIX):
        yield ModelTeacher(reference.removeprefix(MODEL_PREFIX))
    else:
        with open_backbone(reference) as checkpoint:
            yield BackboneTeacher(checkpoint)


class BackboneTeacher:
    """Mean pooling of a backbone's last layer, special tokens included."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.sha256 = checkpoint.sha256
        limit = checkpoint.positions or _MAX_TOKENS
        self._backbone = backbones.load(checkpoint, min(limit, _MAX_TOKENS))

    def vectors(self, sentences: Sequence[str], advance: Advance | None = None) -> Floats:
        """The mean of each sentence's token vectors: [N, D]."""
        tokens = self._backbone.encode(sentences, advance=advance)
        means = [part.mean(axis=0) if len(part) else part.sum(axis=0) for part in tokens]
        return np.stack(means).astype(np.float32)


class ModelTeacher:
    """Mixtures of an assembled model, as vectors whose cosine is its `centred` or cosine metric."""

    def __init__(self, reference: str) -> None:
        self._encoder = Encoder.load(read_settings(ModelSettings, model=reference))
        manifest = self._encoder.manifest
        self.sha256 = manifest.files[MODEL].sha256

    def vectors(self, sentences: Sequence[str], advance: Advance | None = None) -> Floats:
        """The mixture of each sentence, flattened: [N, L*C]."""
        mixtures = self._encoder.encode(sentences).mixtures  # [N, L, C]
        if advance:
            advance(len(sentences))
        if self._encoder.centre is not None:
            mixtures = np.sqrt(mixtures) - self._encoder.centre
        vectors: Floats = mixtures.reshape(len(mixtures), -1)
        return vectors


class FileTeacher:
    """Vectors from a file: a row per sentence of the corpus, in the order of the corpus files."""

    def __init__(self, path: Path, sentences: Iterable[str]) -> None:
        try:
            self._rows = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise TeacherError(f"The teacher {path} cannot be read: {error}.") from error
        if self._rows.ndim != 2 or self._rows.dtype.kind != "f":
            raise TeacherError(
                f"The teacher {path} has shape {self._rows.shape} of {self._rows.dtype}, not a row "
                "of numbers per sentence."
            )
        self._row_of: dict[str, int] = {}
        count = 0
        for count, sentence in enumerate(sentences, start=1):
            self._row_of.setdefault(" ".join(sentence.split()), count - 1)
        if count != len(self._rows):
            raise TeacherError(
                f"The teacher {path} has {len(self._rows):,} rows for the {count:,} sentences of "
                "the corpus: write one row per sentence, in the order of the corpus."
            )
        self.sha256 = sha256_of(path)

    def vectors(self, sentences: Sequence[str], advance: Advance | None = None) -> Floats:
        """The rows of these sentences: [N, D]."""
        if advance:
            advance(len(sentences))
        rows: Floats = self._rows[[self._row_of[sentence] for sentence in sentences]]
        return rows.astype(np.float32)


def directions(vectors: Floats, name: str) -> Floats:
    """Scale vectors [N, D] to unit length; reject a teacher that cannot tell sentences apart."""
    if not np.isfinite(vectors).all():
        row = int(np.argmin(np.isfinite(vectors).all(axis=1)))
        raise TeacherError(f"The teacher {name} gives sentence {row + 1:,} a non-finite vector.")
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)  # [N, 1]
    units: Floats = vectors / np.maximum(norms, np.float32(1e-12))
    if np.ptp(units, axis=0).max() < _SAME:
        raise TeacherError(
            f"The teacher {name} gives every sentence the same direction: it teaches nothing."
        )
    return units
