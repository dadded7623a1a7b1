"""Measure a model's throughput on this machine."""

import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from lattemix.encoder import Encoder
from lattemix.tokenization import Tokens

_LENGTHS = (8, 16, 32, 64, 128, 256, 512)


class Speed(NamedTuple):
    """Throughput of full batches of one length, with as many in parallel as a server runs."""

    length: int  # tokens per sentence
    sentences: float  # per second
    batch_seconds: float  # median

    @property
    def tokens(self) -> float:
        """Tokens per second."""
        return self.sentences * self.length


def measure_speed(encoder: Encoder, seconds: float) -> Iterator[Speed]:
    """Run each length that the model reads for some seconds."""
    longest = encoder.max_parsed_tokens
    for length in [length for length in _LENGTHS if length < longest] + [longest]:
        rows = max(1, encoder.token_budget // length)
        batch = [Tokens(encoder.probe.ids * length, length)] * rows
        start = time.perf_counter()
        with ThreadPoolExecutor(encoder.parallel) as pool:
            workers = [
                pool.submit(_times, encoder, batch, seconds) for _ in range(encoder.parallel)
            ]
            times = [duration for worker in workers for duration in worker.result()]
        sentences = len(times) * rows / (time.perf_counter() - start)
        yield Speed(length, sentences, statistics.median(times))


def _times(encoder: Encoder, batch: list[Tokens], seconds: float) -> list[float]:
    """Run a batch repeatedly for some seconds, and return the duration of each run."""
    times: list[float] = []
    while not times or sum(times) < seconds:
        start = time.perf_counter()
        encoder.run(batch)
        times.append(time.perf_counter() - start)
    return times
