"""Requests to the servers, and their arrival times."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from benchmarks import texts
from benchmarks.load_generator import post

BACKBONE = "all-MiniLM-L6-v2"


def embed(inputs: Sequence[str]) -> bytes:
    """A request for mixtures in numpy's format."""
    return post("/embed", {"inputs": list(inputs), "format": "dense"}, accept="application/x-npy")


def embed_json(inputs: Sequence[str]) -> bytes:
    """A request for mixtures in JSON."""
    return post("/embed", {"inputs": list(inputs), "format": "dense"})


def similarity(pairs: Sequence[Sequence[str]]) -> bytes:
    """A request for the similarities of pairs."""
    return post("/similarity", {"pairs": list(pairs), "metrics": ["cosine", "js"]})


def infinity_embed(inputs: Sequence[str]) -> bytes:
    """A request to infinity for embeddings, in base64, its fastest format."""
    body = {"model": BACKBONE, "input": list(inputs), "encoding_format": "base64"}
    return post("/embeddings", body)


def infinity_embed_pairs(pairs: Sequence[Sequence[str]]) -> bytes:
    """A request to infinity, which has no similarities, for the embeddings of pairs."""
    return infinity_embed([text for pair in pairs for text in pair])


# Mixed traffic: sentences per request, share of the requests, request.
MIX: list[tuple[int, float, Callable[[list[str]], bytes]]] = [
    (1, 0.6, embed),
    (2, 0.2, lambda pair: similarity([pair])),
    (2, 0.06, lambda pair: post("/explain", {"pair": pair})),
    (9, 0.08, lambda texts: post("/rank", {"query": texts[0], "texts": texts[1:]})),
    (32, 0.045, embed),
    (64, 0.01, lambda texts: post("/matrix", {"inputs": texts, "metric": "js", "top_k": 9})),
    (256, 0.005, embed),
]


def mixed_requests(seed: str, count: int) -> Iterator[bytes]:
    """Distinct requests of every kind, with sentences of 3 to 256 tokens."""
    kinds = texts.generator(seed).choice(len(MIX), count, p=[share for _, share, _ in MIX])
    for number, kind in enumerate(kinds):
        size, _, request = MIX[kind]
        text_seed, longest = f"{seed} {number}", 256 if size < 9 else 60
        yield request(texts.write(texts.mixed_lengths(text_seed, size, longest), text_seed))


def poisson_arrivals(seed: str, rate: float, seconds: float) -> NDArray[np.float64]:
    """Arrival times in [0, seconds) of independent requests."""
    gaps = texts.generator(seed).exponential(1 / rate, round(rate * seconds * 1.2) + 20)
    times: NDArray[np.float64] = np.cumsum(gaps)
    return times[times < seconds]


def chunks(items: Sequence[str], size: int) -> list[Sequence[str]]:
    """Consecutive chunks of `size` items; the last may be shorter."""
    return [items[start : start + size] for start in range(0, len(items), size)]
