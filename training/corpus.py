"""A prepared corpus: distinct sentences in random order, on disk, made in bounded memory."""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

from model_store import LatteMixError
from training.exclusion import Exclusion

SHARD_SENTENCES = 2048  # about 20 MB of half-precision vectors for a backbone of width 384
_BUCKETS = 256
_INDEX = "corpus.json"


class CorpusError(LatteMixError):
    """A corpus cannot be read, or is too small."""


@dataclass(frozen=True)
class Corpus:
    """Distinct sentences in random order, on disk, in shards."""

    directory: Path
    sentences: int
    sha256: str  # of the sentences in order
    excluded: int = 0  # distinct sentences that were dropped
    exclusion_sha256: str | None = None  # of the sentences to drop

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.sentences // SHARD_SENTENCES)

    def shard_size(self, index: int) -> int:
        """Number of sentences in a shard; only the last shard is shorter."""
        return min(SHARD_SENTENCES, self.sentences - index * SHARD_SENTENCES)

    def shard(self, index: int) -> list[str]:
        """The sentences of one shard."""
        return _shard(self.directory, index).read_text(encoding="utf-8").split("\n")

    def first(self, count: int) -> list[str]:
        """The first `count` sentences: a random sample, since the order is random."""
        shards = range(min(self.shards, -(-count // SHARD_SENTENCES)))
        return [sentence for index in shards for sentence in self.shard(index)][:count]

    @classmethod
    def open(cls, directory: Path) -> "Corpus | None":
        """The corpus prepared in a directory; None if it is missing or incomplete."""
        try:
            record = json.loads((directory / _INDEX).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return cls(directory, **record)


def prepare(
    sentences: Iterable[str],
    directory: Path,
    limit: int | None = None,
    exclusion: Exclusion | None = None,
) -> Corpus:
    """Write the distinct, non-empty sentences into shards, in random order.

    Sentences are sorted by hash: the order depends neither on the order of the input nor on the
    run's seed, so runs share cached vectors. They are first distributed over files by the first
    byte of the hash, and each file is sorted in memory, which takes a 256th of the corpus.
    With a `limit`, only a random sample of that size is written. Sentences in `exclusion` are
    dropped.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _INDEX).unlink(missing_ok=True)  # written when the shards are complete
    digest, count = hashlib.sha256(), 0
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
        buckets, excluded = _distribute(sentences, Path(temporary), exclusion)
        ordered = islice(_sorted(buckets), limit)
        while shard := [*islice(ordered, SHARD_SENTENCES)]:
            text = "\n".join(shard)
            _shard(directory, count // SHARD_SENTENCES).write_text(text, encoding="utf-8")
            digest.update(text.encode() + b"\n")
            count += len(shard)
    check_size(count)
    exclusion_sha256 = exclusion.sha256 if exclusion else None
    corpus = Corpus(directory, count, digest.hexdigest(), excluded, exclusion_sha256)
    record = asdict(corpus)
    record.pop("directory")
    (directory / _INDEX).write_text(json.dumps(record), encoding="utf-8")
    return corpus


def check_size(sentences: int) -> None:
    """Reject a corpus of fewer than two distinct sentences."""
    if sentences < 2:
        raise CorpusError(
            f"The corpus has {sentences} distinct sentences; training needs at least 2, better "
            "thousands."
        )


def _shard(directory: Path, index: int) -> Path:
    return directory / f"{index:06}.txt"


def _hash(sentence: str) -> bytes:
    return hashlib.blake2b(sentence.encode(), digest_size=16).digest()


def _distribute(
    sentences: Iterable[str], directory: Path, exclusion: Exclusion | None
) -> tuple[list[Path], int]:
    """Write each sentence into the file of its hash's first byte.

    Returns:
        The files, and the number of distinct sentences that were dropped.
    """
    paths = [directory / f"{index:02x}" for index in range(_BUCKETS)]
    dropped: set[bytes] = set()  # hardly more than the exclusion has, however large the corpus
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("w", encoding="utf-8")) for path in paths]
        for sentence in sentences:
            if words := sentence.split():
                line = " ".join(words)  # removes line breaks
                key = _hash(line)
                if exclusion is not None and line in exclusion:
                    dropped.add(key)
                else:
                    files[key[0]].write(line + "\n")
    return paths, len(dropped)


def _sorted(buckets: Sequence[Path]) -> Iterator[str]:
    for bucket in buckets:
        lines = bucket.read_text(encoding="utf-8").split("\n")[:-1]
        yield from sorted(set(lines), key=_hash)
