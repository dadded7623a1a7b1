"""How fast the model is on this machine: the numbers that sizing starts from."""

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from lattemix.encoder import Encoder
from lattemix.tokenization import Tokens

_LENGTHS = (8, 16, 32, 64, 128, 256, 512)


class Speed(NamedTuple):
    """Of full batches of sentences of one length, as many at once as the service would run."""

    length: int  # tokens in a sentence
    sentences: float  # per second
    batch_seconds: float

    @property
    def tokens(self) -> float:
        """Tokens per second."""
        return self.sentences * self.length


def measure(encoder: Encoder, seconds: float) -> Iterator[Speed]:
    """Keep the model busy for so long with every length that it reads."""
    longest = encoder.manifest.max_tokens
    for length in [length for length in _LENGTHS if length < longest] + [longest]:
        rows = max(1, encoder.token_budget // length)
        batch = [Tokens(encoder.probe.ids * length, length)] * rows
        start = time.perf_counter()
        with ThreadPoolExecutor(encoder.parallel) as pool:
            working = [pool.submit(_work, encoder, batch, seconds) for _ in range(encoder.parallel)]
            times = [taken for worker in working for taken in worker.result()]
        sentences = len(times) * rows / (time.perf_counter() - start)
        yield Speed(length, sentences, statistics.median(times))


def _work(encoder: Encoder, batch: list[Tokens], seconds: float) -> list[float]:
    """How long each batch took, one after the other until the time is up."""
    times: list[float] = []
    while not times or sum(times) < seconds:
        start = time.perf_counter()
        encoder.run(batch)
        times.append(time.perf_counter() - start)
    return times
