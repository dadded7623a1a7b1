"""Plain sentences in, a seeded sample of distinct ones out."""

import random
from collections.abc import Iterable
from pathlib import Path

from model_store import LatteMixError


def sample(path: Path, count: int, seed: int) -> list[str]:
    """Draw `count` distinct sentences from a text file of one sentence a line.

    The file is streamed: only the sample is kept, and a hash of each distinct line. The draw is
    uniform over distinct lines (reservoir sampling) and the same for the same seed and file.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            sentences = _reservoir(_distinct(lines), count, random.Random(seed))
    except OSError as error:
        raise LatteMixError(f"Cannot read the corpus {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise LatteMixError(f"The corpus {path} is not UTF-8 text: {error}.") from error
    if not sentences:
        raise LatteMixError(f"The corpus {path} holds no sentences: it needs one a line.")
    return sentences


def _distinct(lines: Iterable[str]) -> Iterable[str]:
    """Stripped, non-empty lines, each once. Remembers hashes, not text."""
    seen: set[int] = set()
    for line in lines:
        sentence = line.strip()
        if sentence and (key := hash(sentence)) not in seen:
            seen.add(key)
            yield sentence


def _reservoir(items: Iterable[str], count: int, rng: random.Random) -> list[str]:
    kept: list[str] = []
    for index, item in enumerate(items):
        if index < count:
            kept.append(item)
        elif (slot := rng.randrange(index + 1)) < count:
            kept[slot] = item
    rng.shuffle(kept)
    return kept
