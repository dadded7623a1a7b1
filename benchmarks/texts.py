"""Sentences of known token counts, all distinct.

Every word is one token of the backbone, so a sentence has two tokens more than words. Speed does
not depend on the words, but a server caches sentences: every measurement seeds its own words.
"""

import json
import zlib
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lattemix.settings import ModelSettings, read_settings
from model_store import Store

SPECIAL_TOKENS = 2  # per sentence

Lengths = NDArray[np.int64]  # in words


def generator(seed: str) -> np.random.Generator:
    """A random number generator seeded by a name."""
    return np.random.default_rng(zlib.crc32(seed.encode()))


def sts_lengths(seed: str, count: int) -> Lengths:
    """Lengths of 4 to 28 words, distributed roughly as in the STS benchmarks."""
    return np.clip(generator(seed).normal(12, 5, count).astype(np.int64), 4, 28)


def mixed_lengths(seed: str, count: int, longest: int = 256) -> Lengths:
    """Lengths of 3 to `longest` tokens, log-uniform, in words."""
    logs = generator(seed).uniform(np.log(3), np.log(longest + 1), count)
    tokens: Lengths = np.exp(logs).astype(np.int64).clip(3, longest)
    return tokens - SPECIAL_TOKENS


def write(lengths: Lengths, seed: str) -> list[str]:
    """Sentences of these lengths, of words drawn by the seed."""
    words = vocabulary()
    indices = generator(f"{seed} words").integers(len(words), size=lengths.sum())
    ends = np.cumsum(lengths)
    return [
        " ".join(words[i] for i in indices[end - length : end])
        for length, end in zip(lengths, ends, strict=True)
    ]


def sentences(seed: str, count: int) -> list[str]:
    """Sentences of STS-like lengths."""
    return write(sts_lengths(seed, count), seed)


@lru_cache
def vocabulary() -> list[str]:
    """Lower-case words that are single tokens of the default model's backbone."""
    file = Store(read_settings(ModelSettings).store).open("default").tokenizer
    tokens = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
    return sorted(t for t in tokens if t.isascii() and t.isalpha() and t.islower() and len(t) > 2)
