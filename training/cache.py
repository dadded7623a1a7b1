"""Token vectors cached on disk, within a size limit, so that no sentence is encoded twice."""

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from lattemix.build.backbones import TokenVectors
from lattemix.build.head import Floats
from lattemix.directories import cache_root
from model_store import LatteMixError
from training.backbones import Advance, Backbone
from training.progress import progress_bar

DEFAULT_GIGABYTES = 20.0

_TOKENS_PER_SENTENCE = 20  # an estimate

_TENSORS = ("vectors", "ids", "lengths", "truncated")


class VectorCache:
    """Encoded lists of sentences in half precision, one file each.

    A file's name is a digest of everything its content depends on, and it is written atomically,
    so that an interrupted run resumes where it stopped. Above `gigabytes`, the least recently used
    files are removed.
    """

    def __init__(self, directory: Path | None = None, gigabytes: float = DEFAULT_GIGABYTES) -> None:
        self.directory = (directory or cache_root()) / "vectors"
        self.limit = int(gigabytes * 1e9)

    def encode(
        self, backbone: Backbone, sentences: Sequence[str], advance: Advance | None = None
    ) -> TokenVectors:
        """The sentences' token vectors in float16 [T, H], from disk if they are cached.

        `advance` is called with the number of sentences read or encoded.
        """
        path = self._path(backbone, sentences)
        if (cached := _read(path)) is not None:
            with suppress(OSError):
                os.utime(path)  # mark as used
            if advance:
                advance(len(sentences))
            return cached
        encoded = _half(backbone, sentences, backbone.encode(sentences, advance=advance))
        self._write(path, encoded)
        return encoded

    def sentence_vectors(
        self, source: str, sentences: Sequence[str], compute: Callable[[], Floats]
    ) -> Floats:
        """One vector per sentence [N, D], from disk if cached, in the precision of float16.

        Args:
            source: digest of everything that the vectors depend on, except the sentences.
            sentences: the sentences.
            compute: returns their vectors.
        """
        path = self.directory / source[:16] / f"{_digest('sentences', sentences)}.st"
        cached = _read(path)
        if cached is None:
            vectors, ids = compute().astype(np.float16), np.zeros(len(sentences), np.int32)
            cached = TokenVectors(vectors, ids, np.ones(len(sentences), np.int32))
            self._write(path, cached)
        return cached.vectors.astype(np.float32)

    def prefetch(
        self, layers: Sequence[Backbone], shards: Iterable[Sequence[str]], sentences: int
    ) -> None:
        """Encode several layers of one backbone in one pass, if the cache can hold them all.

        `shards` are lists of sentences as they will be passed to `encode`; `sentences` is their
        total number.
        """
        size = sentences * _TOKENS_PER_SENTENCE * sum(layer.hidden_size * 2 for layer in layers)
        if len(layers) < 2 or size > self.limit:
            return
        bar = progress_bar("Encoding", "sentences", total=sentences)
        for shard in shards:
            missing = [layer for layer in layers if not self.holds(layer, shard)]
            numbers = [layer.layer for layer in missing]
            encoded = layers[0].encode_layers(shard, numbers) if missing else []
            for layer, tokens in zip(missing, encoded, strict=True):
                self._write(self._path(layer, shard), _half(layer, shard, tokens))
            bar.update(len(shard))
        bar.close()

    def holds(self, backbone: Backbone, sentences: Sequence[str]) -> bool:
        """Whether these sentences are cached."""
        return self._path(backbone, sentences).is_file()

    def _path(self, backbone: Backbone, sentences: Sequence[str]) -> Path:
        checkpoint = backbone.checkpoint
        variant = (checkpoint.tokenizer_sha256, backbone.layer, backbone.max_tokens)
        name = f"{_digest(str(variant), sentences)}.st"
        return self.directory / checkpoint.sha256[:16] / name

    def _write(self, path: Path, encoded: TokenVectors) -> None:
        size = encoded.vectors.nbytes
        if size > self.limit:
            return
        new = path.with_suffix(f".{os.getpid()}.new")
        parts = (encoded.vectors, encoded.ids, encoded.lengths, np.array([encoded.truncated]))
        # If the cache cannot be written, or another run removes files from it, training goes on.
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._make_room(size)
            save_file(dict(zip(_TENSORS, parts, strict=True)), new)
            new.replace(path)
        except (OSError, SafetensorError):
            with suppress(OSError):
                new.unlink(missing_ok=True)

    def _make_room(self, size: int) -> None:
        files = [(file, file.stat()) for file in self.directory.glob("*/*.st")]
        excess = sum(stat.st_size for _, stat in files) + size - self.limit
        for file, stat in sorted(files, key=lambda entry: entry[1].st_mtime_ns):
            if excess <= 0:
                break
            file.unlink(missing_ok=True)
            excess -= stat.st_size


def _digest(variant: str, sentences: Sequence[str]) -> str:
    digest = hashlib.sha256(f"{variant}\n".encode())
    for sentence in sentences:
        digest.update(sentence.encode() + b"\n")
    return digest.hexdigest()[:32]


def _read(path: Path) -> TokenVectors | None:
    try:
        with safe_open(path, framework="numpy") as file:
            vectors, ids, lengths, truncated = map(file.get_tensor, _TENSORS)
            return TokenVectors(vectors, ids, lengths, int(truncated[0]))
    except (OSError, SafetensorError):
        return None  # missing or damaged


def _half(backbone: Backbone, sentences: Sequence[str], encoded: TokenVectors) -> TokenVectors:
    """Convert to half precision; reject vectors that are not finite in it."""
    with np.errstate(over="ignore"):
        vectors = encoded.vectors.astype(np.float16)
    finite = np.isfinite(vectors).all(axis=1)  # [T]
    if not finite.all():
        sentence = sentences[int(encoded.sentence_of[np.argmin(finite)])]
        raise LatteMixError(
            f"{backbone.checkpoint.name} gives vectors that are not finite (or beyond 65,504) at "
            f"layer {backbone.layer}, first for {sentence[:60]!r}: its weights are damaged, or "
            "another layer is needed."
        )
    return TokenVectors(vectors, encoded.ids, encoded.lengths, encoded.truncated)
