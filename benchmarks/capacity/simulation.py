"""Discrete-event simulation of servers: arrivals, event loop, tokenizer, queue and batches.

Batches are chosen by the service's own `Queue`. Python code of a process runs in one lane, since a
process has one interpreter lock. Only times are simulated; nothing is computed.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.engine.queue import Queue, Sentence, Submission
from benchmarks.capacity.resources import Clock, Cores, Lane
from lattemix.tokenization import Tokens

_RATE_SECONDS = 0.2  # time constant of the moving average, see app/engine/batcher.py


@dataclass(frozen=True)
class Model:
    """Service times of a model on a device."""

    token_seconds: float
    batch_seconds: float  # fixed cost of a batch
    token_budget: int
    threads: int = 1  # concurrent batches of a process
    length_multiple: int = 1  # batches are padded to it
    cores: bool = False  # the model runs on the host's cores, not on a device of its own

    def padded(self, length: int) -> int:
        """Length that a batch is padded to."""
        return -(-length // self.length_multiple) * self.length_multiple

    def seconds(self, lengths: Sequence[int]) -> float:
        """Duration of a batch of sentences with these lengths."""
        padded = self.padded(max(lengths)) * len(lengths)
        return self.batch_seconds + padded * self.token_seconds


@dataclass(frozen=True)
class HostCost:
    """CPU seconds of a request on the host, without the model."""

    loop: float  # event loop
    tokenizer: float
    model: float  # thread that runs batches: arrays and copies


@dataclass(frozen=True)
class Host:
    """Servers behind one proxy that share a device."""

    processes: int = 1
    cores: float = math.inf
    max_wait: float = math.inf  # seconds; requests that would wait longer are rejected


@dataclass(frozen=True)
class Outcome:
    """What happened to all requests."""

    seconds: NDArray[np.float64]  # latency; NaN if rejected
    elapsed: float  # to the last response
    batches: int
    busy: dict[str, float]  # share of `elapsed`, on average over processes

    @property
    def completed(self) -> int:
        """Requests that were answered."""
        return int(np.isfinite(self.seconds).sum())

    def milliseconds(self, percentile: float) -> float:
        """A percentile of the latency."""
        return float(np.nanpercentile(self.seconds, percentile) * 1000)


class _Loop:
    """Stands in for the event loop that `Submission` asks for a future."""

    def create_future(self) -> None:
        return None


class Process:
    """One server."""

    def __init__(
        self,
        clock: Clock,
        model: Model,
        cost: HostCost,
        max_wait: float,
        cores: Cores,
        device: Lane,
    ) -> None:
        self.in_flight = self.batches = 0
        self.python, self.tokenizer = Lane(cores), Lane(cores)
        self.queue = Queue(
            model.token_budget,
            model.padded,
            model.batch_seconds / model.token_seconds,
            model.threads,
        )
        self._model, self._cost, self._max_wait = model, cost, max_wait
        self._cores, self._device, self._idle = cores, device, model.threads
        self._clock, self._rate = clock, model.threads / model.token_seconds
        self._responses: dict[Submission, Callable[[bool], None]] = {}

    def receive(self, lengths: Sequence[int], respond: Callable[[bool], None]) -> None:
        """Process a request; `respond` is called with whether it was accepted."""
        self.in_flight += 1

        def respond_and_leave(accepted: bool) -> None:
            self.in_flight -= 1
            respond(accepted)

        def tokenize() -> None:
            self.tokenizer.run(
                self._cost.tokenizer, lambda: self._submit(lengths, respond_and_leave)
            )

        self.python.run(self._cost.loop / 2, tokenize)

    def _submit(self, lengths: Sequence[int], respond: Callable[[bool], None]) -> None:
        if self.queue.tokens_ahead / self._rate > self._max_wait:
            respond(False)
            return
        loop: Any = _Loop()
        submission = Submission(loop)
        sentences = [Sentence(Tokens([0] * length, length), ()) for length in lengths]
        for sentence in sentences:
            submission.append(sentence)
        self._responses[submission] = respond
        self.queue.add(submission, sentences)
        self._start_batches()

    def _start_batches(self) -> None:
        while self._idle and self.queue.sentences:
            self._idle -= 1
            self._run(self.queue.take())

    def _run(self, batch: list[Sentence]) -> None:
        self.batches += 1
        seconds = self._model.seconds([len(sentence) for sentence in batch])
        submissions = [submission for sentence in batch for submission in sentence.submissions]
        host = sum(self._cost.model / len(each.sentences) for each in submissions)

        start = self._clock.now

        def computed() -> None:
            self._measure(sum(map(len, batch)), self._clock.now - start)
            self.python.run(host / 2, delivered)

        def delivered() -> None:
            self._deliver(batch)
            self._idle += 1
            self._start_batches()

        def compute() -> None:
            if self._model.cores:
                self._cores.run(seconds, computed, priority=False)
            else:
                self._device.run(seconds, computed)

        self.python.run(host / 2, compute)

    def _measure(self, tokens: int, seconds: float) -> None:
        """Update the moving average of the throughput, as the service does."""
        if self.queue.sentences and seconds:
            rate = tokens / seconds * self._model.threads
            self._rate += (rate - self._rate) * min(1.0, seconds / _RATE_SECONDS)

    def _deliver(self, batch: list[Sentence]) -> None:
        for sentence in batch:
            for submission in sentence.submissions:
                submission.pending.discard(sentence)
                if not submission.pending:
                    respond = self._responses.pop(submission)
                    self.python.run(self._cost.loop / 2, partial(respond, True))


def simulate(
    arrivals: NDArray[np.float64],
    lengths: Callable[[int], Sequence[int]],
    model: Model,
    cost: HostCost,
    host: Host | None = None,
) -> Outcome:
    """Send requests to the process with the fewest in flight, as nginx's `least_conn` does.

    Args:
        arrivals: time of each request, in seconds.
        lengths: the tokens of each sentence of a request, given its number.
        model: the model.
        cost: cost of a request on the host.
        host: processes, cores and limit; default: one process, and enough cores.
    """
    host, clock = host or Host(), Clock()
    cores = Cores(clock, host.cores)
    device = Lane(Cores(clock, 1))  # runs batches of all processes, in order
    processes = [
        Process(clock, model, cost, host.max_wait, cores, device) for _ in range(host.processes)
    ]
    latencies = np.full(len(arrivals), np.nan)

    def arrive(index: int) -> None:
        def respond(accepted: bool) -> None:
            if accepted:
                latencies[index] = clock.now - arrivals[index]

        process = min(processes, key=lambda each: each.in_flight)
        process.receive(lengths(index), respond)
        if index + 1 < len(arrivals):
            clock.at(float(arrivals[index + 1]), lambda: arrive(index + 1))

    if len(arrivals):
        clock.at(float(arrivals[0]), lambda: arrive(0))
    clock.run()
    elapsed = clock.now or 1.0
    busy = {
        "python": sum(p.python.busy for p in processes) / len(processes) / elapsed,
        "tokenizer": sum(p.tokenizer.busy for p in processes) / len(processes) / elapsed,
        "device": device.busy / elapsed,
    }
    return Outcome(latencies, elapsed, sum(p.batches for p in processes), busy)
