"""The sentences that everything is measured on: of known lengths, and never the same twice.

Every word is one token of the backbone, so a sentence has as many tokens as words, and two more
that stand at its ends. What the words are does not matter to the speed; what was asked before does
to a server that remembers, so each draw has a name of its own, and other names give other words.
"""

import json
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lattemix.settings import ModelSettings, load_settings
from model_store import Store

BACKBONE = "all-MiniLM-L6-v2"
SPECIAL_TOKENS = 2

Lengths = NDArray[np.int64]  # in words


def sentences(number: int, count: int = 1024) -> list[str]:
    """Distinct word salads of 4 to 28 words, about as long as the sentences of STS."""
    return write(usual(f"sentences {number}", count), f"sentences {number}")


def usual(name: str, count: int) -> Lengths:
    """Lengths of 4 to 28 words, about as those of STS."""
    return np.clip(_chance(name).normal(12, 5, count).astype(np.int64), 4, 28)


def mixed(name: str, count: int, shortest: int = 3, longest: int = 256) -> Lengths:
    """Lengths of so many to so many tokens, every magnitude as often as any other."""
    low, high = np.log(shortest), np.log(longest + 1)
    tokens = np.exp(_chance(name).uniform(low, high, count)).astype(np.int64)
    words: Lengths = tokens.clip(shortest, longest) - SPECIAL_TOKENS
    return words


def tokens_of(lengths: Lengths) -> int:
    """Tokens in sentences of so many words, all together."""
    return int(lengths.sum()) + SPECIAL_TOKENS * len(lengths)


def write(lengths: Lengths, name: str, words: list[str] | None = None) -> list[str]:
    """Sentences of these lengths, in words that the name decides."""
    words = words or vocabulary()
    drawn = [words[i] for i in _chance(f"{name} words").integers(len(words), size=lengths.sum())]
    ends = np.cumsum(lengths)
    return [" ".join(drawn[end - length : end]) for length, end in zip(lengths, ends, strict=True)]


def tokenizer_file() -> Path:
    """The backbone's `tokenizer.json`."""
    return Store(load_settings(ModelSettings).store).open("default").tokenizer


@lru_cache
def vocabulary() -> list[str]:
    """Plain words that are a token of the backbone's each."""
    tokens = json.loads(tokenizer_file().read_text(encoding="utf-8"))["model"]["vocab"]
    return sorted(t for t in tokens if t.isascii() and t.isalpha() and t.islower() and len(t) > 2)


def seed(name: str) -> int:
    """The number that stands for a name."""
    return zlib.crc32(name.encode())


def _chance(name: str) -> np.random.Generator:
    return np.random.default_rng(seed(name))
