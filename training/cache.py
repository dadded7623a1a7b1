"""Token vectors on disk: no sentence goes through a backbone twice, and no disk is filled."""

import hashlib
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from lattemix.build.backbones import TokenVectors
from lattemix.directories import cache_root
from model_store import LatteMixError
from training.backbones import Advance, Backbone
from training.progress import progress_bar

DEFAULT_GIGABYTES = 20.0

_TOKENS = 20  # in a sentence, about

_TENSORS = ("vectors", "ids", "lengths", "truncated")


class VectorCache:
    """Encoded lists of sentences, each in a file named for everything its content depends on.

    A file is written whole or not at all, so an interrupted run resumes where it was. When the
    files outgrow `gigabytes`, those unused for longest go. Vectors are kept in half precision.
    """

    def __init__(self, directory: Path | None = None, gigabytes: float = DEFAULT_GIGABYTES) -> None:
        self.directory = (directory or cache_root()) / "vectors"
        self.limit = int(gigabytes * 1e9)

    def encode(
        self, backbone: Backbone, sentences: Sequence[str], advance: Advance | None = None
    ) -> TokenVectors:
        """The sentences' token vectors, in float16 [T, H]: from disk, or encoded and kept.

        `advance` is called with the number of sentences encoded or read, as they are.
        """
        path = self._path(backbone, sentences)
        if (found := _read(path)) is not None:
            with suppress(OSError):
                os.utime(path)  # used just now
            if advance:
                advance(len(sentences))
            return found
        encoded = _half(backbone, sentences, backbone.encode(sentences, advance=advance))
        self._keep(path, encoded)
        return encoded

    def ahead(
        self, layers: Sequence[Backbone], shards: Iterable[Sequence[str]], sentences: int
    ) -> None:
        """Encode several layers of one backbone in one pass, if all of them can be kept.

        Args:
            layers: the backbone, at each of its layers.
            shards: the lists that will be asked for.
            sentences: how many there are in all.
        """
        size = sentences * _TOKENS * sum(layer.hidden_size * 2 for layer in layers)
        if len(layers) < 2 or size > self.limit:
            return  # each by itself, when it is asked for
        bar = progress_bar("Encoding", "sentences", total=sentences)
        for shard in shards:
            missing = [layer for layer in layers if not self.holds(layer, shard)]
            numbers = [layer.layer for layer in missing]
            found = layers[0].encode_layers(shard, numbers) if missing else []
            for layer, encoded in zip(missing, found, strict=True):
                self._keep(self._path(layer, shard), _half(layer, shard, encoded))
            bar.update(len(shard))
        bar.close()

    def holds(self, backbone: Backbone, sentences: Sequence[str]) -> bool:
        """Whether these sentences are encoded already."""
        return self._path(backbone, sentences).is_file()

    def _path(self, backbone: Backbone, sentences: Sequence[str]) -> Path:
        checkpoint = backbone.checkpoint
        how = (checkpoint.tokenizer_sha256, backbone.layer, backbone.max_tokens)
        digest = hashlib.sha256(f"{how}\n".encode())
        for sentence in sentences:
            digest.update(sentence.encode() + b"\n")
        return self.directory / checkpoint.sha256[:16] / f"{digest.hexdigest()[:32]}.st"

    def _keep(self, path: Path, encoded: TokenVectors) -> None:
        if encoded.vectors.nbytes <= self.limit:
            self._write(path, encoded)

    def _write(self, path: Path, encoded: TokenVectors) -> None:
        new = path.with_suffix(f".{os.getpid()}.new")
        cut = np.array([encoded.truncated])
        parts = (encoded.vectors, encoded.ids, encoded.lengths, cut)
        tensors = dict(zip(_TENSORS, parts, strict=True))
        # A cache that cannot be written, or is swept by another run, costs time, not the run.
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._make_room(encoded.vectors.nbytes)
            save_file(tensors, new)
            new.replace(path)
        except (OSError, SafetensorError):
            with suppress(OSError):
                new.unlink(missing_ok=True)

    def _make_room(self, needed: int) -> None:
        files = [(file, file.stat()) for file in self.directory.glob("*/*.st")]
        excess = sum(stat.st_size for _, stat in files) + needed - self.limit
        for file, stat in sorted(files, key=lambda entry: entry[1].st_mtime_ns):
            if excess <= 0:
                break
            file.unlink(missing_ok=True)
            excess -= stat.st_size


def _read(path: Path) -> TokenVectors | None:
    try:
        with safe_open(path, framework="numpy") as file:
            vectors, ids, lengths, truncated = map(file.get_tensor, _TENSORS)
            return TokenVectors(vectors, ids, lengths, int(truncated[0]))
    except (OSError, SafetensorError):
        return None  # not there, or damaged: it is encoded again


def _half(backbone: Backbone, sentences: Sequence[str], encoded: TokenVectors) -> TokenVectors:
    """In half precision; refuse vectors that it, or any, cannot hold."""
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
