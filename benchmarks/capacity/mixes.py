"""Kinds of requests, as they are measured and simulated."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.texts import SPECIAL_TOKENS, Lengths, sts_lengths
from benchmarks.traffic import embed, embed_json, similarity

LONG = 254  # words, 256 tokens: the longest text that the default model reads at once


class Mix(NamedTuple):
    """Requests of one kind."""

    name: str
    sentences: int  # per request
    words: Callable[[str, int], Lengths]  # of sentences, given a seed and their number
    request: Callable[[Sequence[str]], bytes]

    def lengths(self, seed: str, count: int) -> Lengths:
        """Lengths in tokens."""
        return self.words(seed, count) + SPECIAL_TOKENS


def _pairs(texts: Sequence[str]) -> bytes:
    return similarity([texts[i : i + 2] for i in range(0, len(texts), 2)])


def _long(_: str, count: int) -> Lengths:
    return np.full(count, LONG)


MIXES = [
    Mix("1 sentence, npy", 1, sts_lengths, embed),
    Mix("1 pair", 2, sts_lengths, _pairs),
    Mix("32 sentences, npy", 32, sts_lengths, embed),
    Mix("32 sentences, JSON", 32, sts_lengths, embed_json),
    Mix("32 pairs", 64, sts_lengths, _pairs),
    Mix("8 texts of 256 tokens, npy", 8, _long, embed),
]
