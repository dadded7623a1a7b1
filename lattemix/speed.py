"""Measure a model's throughput on this machine."""

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from lattemix.encoder import Encoder
from lattemix.tokenization import Tokens

_LENGTHS = (8, 16, 32, 64, 128, 256, 512)


class Speed(NamedTuple):
    """Throughput of batches of one size, with as many in parallel as a server runs."""

    length: int  # tokens per sentence
    rows: int  # sentences per batch
    sentences: float  # per second
    batch_seconds: float  # median

    @property
    def tokens(self) -> float:
        """Tokens per second."""
        return self.sentences * self.length


def lengths(encoder: Encoder) -> list[int]:
    """Return the lengths to measure, up to the longest that the model reads."""
    longest = encoder.max_parsed_tokens
    return [length for length in _LENGTHS if length < longest] + [longest]


def full_rows(encoder: Encoder, length: int) -> int:
    """Return the number of sentences in a full batch."""
    return max(1, encoder.token_budget // length)


def measure_speed(encoder: Encoder, length: int, rows: int, seconds: float) -> Speed:
    """Run batches of one size for some seconds."""
    batch = [Tokens(encoder.probe.ids * length, length)] * rows
    start = time.perf_counter()
    with ThreadPoolExecutor(encoder.parallel) as pool:
        workers = [pool.submit(_times, encoder, batch, seconds) for _ in range(encoder.parallel)]
        times = [duration for worker in workers for duration in worker.result()]
    sentences = len(times) * rows / (time.perf_counter() - start)
    return Speed(length, rows, sentences, statistics.median(times))


def _times(encoder: Encoder, batch: list[Tokens], seconds: float) -> list[float]:
    """Run a batch repeatedly for some seconds, and return the duration of each run."""
    times: list[float] = []
    while not times or sum(times) < seconds:
        start = time.perf_counter()
        encoder.run(batch)
        times.append(time.perf_counter() - start)
    return times
