"""Sends requests to a server as N clients would, or as they arrive, and times the answers.

It shares the machine with the server it measures, so it does little: requests are bytes made
beforehand, and of an answer only the status and the length are read. What it costs is measured,
too (`Answers.cpu`), and stands beside every result: on two cores of a server's processor about
0.1 ms of a core for a request of one sentence, and 0.2 to 0.5 ms for one of 32, whose answer has
330 kB.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import uvloop
from numpy.typing import NDArray

HOST = "127.0.0.1"
REFUSED = 429
FAILED = 0  # the status of a request whose connection broke
_TICK = 0.001  # seconds; what is due within one is sent together, since waking up is costly
_PATIENCE_SECONDS = 120.0  # without any answer, after which the rest count as failed
_LONGEST_IDLE = 2.0  # seconds; servers close what is idle longer than some, just as it is used


class LoadError(Exception):
    """An answer that this client does not read."""


class Answers(NamedTuple):
    """What became of requests, in the order they were given."""

    due: NDArray[np.float64]  # seconds from the start until each was to be sent
    seconds: NDArray[np.float64]  # from then to the last byte of its answer
    status: NDArray[np.int64]
    elapsed: float  # until the last answer
    cpu: float  # seconds that this client computed

    @property
    def good(self) -> NDArray[np.bool_]:
        """Which were answered 200."""
        good: NDArray[np.bool_] = self.status == 200
        return good

    @property
    def rate(self) -> float:
        """Good answers per second."""
        return float(self.good.sum() / self.elapsed)

    def milliseconds(self, percentile: float) -> float:
        """So long took so many percent of the good answers, at most."""
        return float(np.percentile(self.seconds[self.good], percentile) * 1000)

    def others(self, *expected: int) -> dict[int, int]:
        """How often each status came, but for 200 and the expected ones."""
        found, counts = np.unique(self.status, return_counts=True)
        known = {200, *expected}
        return {int(s): int(n) for s, n in zip(found, counts, strict=True) if s not in known}

    def check(self) -> "Answers":
        """Itself, if every answer was good."""
        if others := self.others():
            raise LoadError(f"There were answers other than 200 (0: connection lost): {others}.")
        return self


def post(path: str, body: object, accept: str = "application/json") -> bytes:
    """A request, ready to be sent."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\naccept: {accept}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def closed(port: int, requests: Sequence[bytes], clients: int) -> Answers:
    """Send all requests, each client its next one as soon as it has been answered."""
    return uvloop.run(_Load(port, requests).closed(clients))


def arriving(port: int, requests: Sequence[bytes], due: NDArray[np.float64]) -> Answers:
    """Send each request when it is due, whether or not those before have been answered."""
    return uvloop.run(_Load(port, requests).arriving(due))


def head_of(head: bytes) -> tuple[int, int, bool]:
    """Status and content length of an answer, and whether the connection stays."""
    first, *lines = head.split(b"\r\n")
    headers = {
        name.lower(): value.strip().lower()
        for name, _, value in (line.partition(b":") for line in lines)
    }
    try:
        length = int(headers[b"content-length"])
    except (KeyError, ValueError):
        raise LoadError(f"An answer came without its length: {first.decode()}.") from None
    status = int(first.split()[1])
    if status == REFUSED and not headers.get(b"retry-after", b"").isdigit():
        raise LoadError("A request was refused without saying for how long.")
    return status, length, headers.get(b"connection") != b"close"


class _Load:
    """Requests under way."""

    def __init__(self, port: int, requests: Sequence[bytes]) -> None:
        self.port = port
        self.requests = requests
        self.due = np.zeros(len(requests))
        self.seconds = np.zeros(len(requests))
        self.status = np.full(len(requests), FAILED)
        self.free: list[_Connection] = []
        self._sent = 0
        self._answered = 0
        self._start = self._last = 0.0
        self._endless = False  # whether an answer is a reason to send the next request
        self._opening: set[asyncio.Task[None]] = set()

    async def closed(self, clients: int) -> Answers:
        self._endless = True
        self._begin()
        for _ in range(min(clients, len(self.requests))):
            self._next()
        return await self._answers()

    async def arriving(self, due: NDArray[np.float64]) -> Answers:
        self._begin()
        self.due = due
        loop = asyncio.get_running_loop()

        def arrive() -> None:
            now = time.perf_counter() - self._start
            while self._sent < len(due) and due[self._sent] <= now:
                self._send(self._sent)
                self._sent += 1
            if self._sent < len(due):
                loop.call_later(max(_TICK, due[self._sent] - now), arrive)

        arrive()
        return await self._answers()

    def _begin(self) -> None:
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cpu = time.process_time()
        self._start = self._last = time.perf_counter()

    async def _answers(self) -> Answers:
        answered = -1
        while self.requests and not self.done.done() and self._answered > answered:
            answered = self._answered
            await asyncio.wait((self.done,), timeout=_PATIENCE_SECONDS)
        if self.done.done():
            self.done.result()  # which may be what went wrong
        cpu, elapsed = time.process_time() - self._cpu, self._last - self._start
        for connection in self.free:
            connection.transport.close()
        return Answers(self.due, self.seconds, self.status, elapsed, cpu)

    def _next(self) -> None:
        if self._sent < len(self.requests):
            self.due[self._sent] = time.perf_counter() - self._start
            self._send(self._sent)
            self._sent += 1

    def _send(self, index: int) -> None:
        now = time.perf_counter()
        while self.free:
            connection = self.free.pop()
            if not connection.transport.is_closing() and now - connection.used < _LONGEST_IDLE:
                connection.send(index)
                return
            connection.transport.close()
        task = asyncio.get_running_loop().create_task(self._open(index))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, index: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, connection = await loop.create_connection(lambda: _Connection(self), HOST, self.port)
        except OSError:
            self.answered(index, FAILED)
        else:
            connection.send(index)

    def answered(self, index: int, status: int) -> None:
        """Note the end of a request."""
        self._last = time.perf_counter()
        self.seconds[index] = self._last - self._start - self.due[index]
        self.status[index] = status
        self._answered += 1
        if self._endless:
            self._next()
        if self._answered == len(self.requests) and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        """Give up."""
        if not self.done.done():
            self.done.set_exception(error)


class _Connection(asyncio.Protocol):
    """Carries one request at a time."""

    transport: Any

    def __init__(self, load: _Load) -> None:
        self.used = 0.0
        self._load = load
        self._index = -1  # of the request under way
        self._head = b""
        self._status = -1  # until the head has come
        self._missing = 0  # bytes of the body
        self._stays = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def send(self, index: int) -> None:
        """Begin a request."""
        self._index = index
        self.transport.write(self._load.requests[index])

    def data_received(self, data: bytes) -> None:
        if self._status < 0:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return
            try:
                self._status, self._missing, self._stays = head_of(self._head[:end])
            except LoadError as error:
                self._load.fail(error)
                self.transport.close()
                return
            data, self._head = self._head[end + 4 :], b""
        self._missing -= len(data)
        if self._missing > 0:
            return
        index, status = self._index, self._status
        self._index = self._status = -1
        if self._stays:
            self.used = time.perf_counter()
            self._load.free.append(self)
        else:
            self.transport.close()
        self._load.answered(index, status)

    def connection_lost(self, error: Exception | None) -> None:
        if self._index >= 0:
            index, self._index = self._index, -1
            self._load.answered(index, FAILED)
