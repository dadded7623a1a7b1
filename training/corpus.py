"""Sentences from files of many kinds, de-duplicated and shuffled in bounded memory."""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from model_store import LatteMixError

SHARD_SENTENCES = 2048  # about 20 MB of half-precision vectors, for a backbone 384 wide
_BUCKETS = 256
_INDEX = "corpus.json"


class CorpusError(LatteMixError):
    """A corpus cannot be read, or is of no use."""


@dataclass(frozen=True)
class Corpus:
    """Distinct sentences in random order, on disk, in shards."""

    directory: Path
    sentences: int
    sha256: str  # of the sentences in their order

    @property
    def shards(self) -> int:
        """How many lists of at most `SHARD_SENTENCES` there are."""
        return -(-self.sentences // SHARD_SENTENCES)

    def shard_size(self, index: int) -> int:
        """The number of sentences in one shard; only the last is shorter than the others."""
        return min(SHARD_SENTENCES, self.sentences - index * SHARD_SENTENCES)

    def shard(self, index: int) -> list[str]:
        """The sentences of one shard."""
        return _shard(self.directory, index).read_text(encoding="utf-8").split("\n")

    def head(self, count: int) -> list[str]:
        """The first `count` sentences: a sample, since the order is random."""
        found: list[str] = []
        for index in range(self.shards):
            if len(found) >= count:
                break
            found += self.shard(index)
        return found[:count]

    @classmethod
    def open(cls, directory: Path) -> "Corpus | None":
        """One that was prepared earlier, if it was completed."""
        try:
            found = json.loads((directory / _INDEX).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return cls(directory, **found)


def prepare(sentences: Iterable[str], directory: Path, most: int | None = None) -> Corpus:
    """Write the distinct sentences into shards, in random order.

    The order is that of their hashes, so it is the same for every order of the lines, and for
    every run: what one has encoded, another finds in the cache. A run's seed draws the order of
    shards and of the sentences in each. Sentences are first spread over files by the hash's first
    byte, where equal ones meet; each file is then sorted in memory. So tens of millions need the
    memory of a 256th of them.

    Args:
        sentences: what to prepare; duplicates and empty ones are dropped.
        directory: where the shards go.
        most: keep only so many, a random sample.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _INDEX).unlink(missing_ok=True)  # until it is whole
    digest, count = hashlib.sha256(), 0
    with tempfile.TemporaryDirectory(dir=directory) as temporary:
        buckets = _spread(sentences, Path(temporary))
        for index, shard in enumerate(_chunks(_ordered(buckets), SHARD_SENTENCES, most)):
            text = "\n".join(shard)
            _shard(directory, index).write_text(text, encoding="utf-8")
            digest.update(text.encode() + b"\n")
            count += len(shard)
    check_size(count)
    corpus = Corpus(directory, count, digest.hexdigest())
    record = asdict(corpus)
    record.pop("directory")
    (directory / _INDEX).write_text(json.dumps(record), encoding="utf-8")
    return corpus


def check_size(sentences: int) -> None:
    """Refuse a corpus of fewer than two distinct sentences."""
    if sentences < 2:
        raise CorpusError(
            f"The corpus holds {'one sentence' if sentences else 'no sentences'}: a head is "
            "trained on many, and thousands are better."
        )


def _shard(directory: Path, index: int) -> Path:
    return directory / f"{index:06}.txt"


def _key(sentence: str) -> bytes:
    return hashlib.blake2b(sentence.encode(), digest_size=16).digest()


def _spread(sentences: Iterable[str], directory: Path) -> list[Path]:
    """Write each sentence into the file of its key's first byte."""
    paths = [directory / f"{index:02x}" for index in range(_BUCKETS)]
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("w", encoding="utf-8")) for path in paths]
        for sentence in sentences:
            if words := sentence.split():
                line = " ".join(words)  # no line ends inside
                files[_key(line)[0]].write(line + "\n")
    return paths


def _ordered(buckets: Sequence[Path]) -> Iterator[str]:
    for bucket in buckets:
        lines = bucket.read_text(encoding="utf-8").split("\n")[:-1]
        yield from sorted(set(lines), key=_key)


def _chunks(items: Iterable[str], size: int, most: int | None) -> Iterator[list[str]]:
    chunk: list[str] = []
    for index, item in enumerate(items):
        if index == most:
            break
        chunk.append(item)
        if len(chunk) == size:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
