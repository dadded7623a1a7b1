"""Sends HTTP requests in a closed or an open loop, and times the responses.

The generator shares the machine with the server that it measures, so it does little: requests are
bytes prepared beforehand, and response bodies are discarded. Its own CPU time is measured too.
"""

import asyncio
import json
import resource
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, NamedTuple

import httptools
import numpy as np
import uvloop
from numpy.typing import NDArray

HOST = "127.0.0.1"
OK, TOO_MANY_REQUESTS = 200, 429
FAILED = 0  # status of a request without a response
TIMEOUT_SECONDS = 120.0
_TICK_SECONDS = 0.001  # arrivals within a tick are sent together: waking up is costly
_READ_BYTES = 262_144
_MAX_IDLE_SECONDS = 2.0  # a server may close a connection that was idle for longer


class LoadError(Exception):
    """The server's responses are not what the benchmark expects."""


class Responses(NamedTuple):
    """Outcome of all requests, in the order of the requests."""

    due: NDArray[np.float64]  # seconds from the start at which each request was to be sent
    seconds: NDArray[np.float64]  # from then to the end of the response
    status: NDArray[np.int64]
    elapsed: float  # seconds from the start to the last response
    cpu: float  # CPU seconds of the generator

    @property
    def ok(self) -> NDArray[np.bool_]:
        """Mask of the requests answered with 200."""
        return np.asarray(self.status == OK)

    @property
    def rate(self) -> float:
        """Responses with 200 per second."""
        return float(self.ok.sum() / self.elapsed)

    def milliseconds(self, percentile: float) -> float:
        """A percentile of the latency of responses with 200."""
        return float(np.percentile(self.seconds[self.ok], percentile) * 1000)

    def count(self, status: int) -> int:
        """Number of responses with a status."""
        return int((self.status == status).sum())

    def errors(self, *allowed: int) -> dict[int, int]:
        """Number of responses by status, without 200 and the allowed ones."""
        statuses = set(self.status.tolist()) - {OK, *allowed}
        return {status: self.count(status) for status in sorted(statuses)}

    def check(self, *allowed: int) -> "Responses":
        """Return self, or raise LoadError if a status is neither 200 nor allowed."""
        if errors := self.errors(*allowed):
            raise LoadError(f"Unexpected statuses (0: no response), with counts: {errors}.")
        return self


def post(path: str, body: object, accept: str = "application/json") -> bytes:
    """A complete POST request."""
    content = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\naccept: {accept}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(content)}\r\n\r\n"
    )
    return head.encode() + content


def closed_loop(port: int, requests: Sequence[bytes], clients: int) -> Responses:
    """Send all requests; each client sends its next one when it has received a response."""

    async def client(load: _Load, indices: Iterator[int]) -> None:
        for index in indices:
            await load.send(index, load.now())

    async def send_all(load: _Load) -> None:
        indices = iter(range(len(requests)))  # shared by all clients
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client(load, indices))

    return _Load(port, requests).run(send_all)


def open_loop(port: int, requests: Sequence[bytes], due: NDArray[np.float64]) -> Responses:
    """Send each request when it is due, whether or not earlier ones have been answered."""

    async def send_all(load: _Load) -> None:
        async with asyncio.TaskGroup() as group:
            for index, moment in enumerate(due.tolist()):
                while (delay := moment - load.now()) > 0:  # uvloop may wake up too early
                    await asyncio.sleep(max(delay, _TICK_SECONDS))
                group.create_task(load.send(index, moment))

    return _Load(port, requests).run(send_all)


class _Load:
    """Requests to one server over a pool of keep-alive connections."""

    def __init__(self, port: int, requests: Sequence[bytes]) -> None:
        self._port = port
        self._requests = requests
        self._due, self._seconds = np.zeros(len(requests)), np.zeros(len(requests))
        self._status = np.full(len(requests), FAILED)
        self._connections: list[_Connection] = []
        self._idle: list[_Connection] = []
        self._start = 0.0

    def run(self, send_all: Callable[["_Load"], Coroutine[Any, Any, None]]) -> Responses:
        _, limit = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))  # one file per connection
        self._start, cpu = time.perf_counter(), time.process_time()

        async def send_and_close() -> None:
            try:
                await send_all(self)
            finally:
                for connection in self._connections:
                    connection.close()

        try:
            uvloop.run(send_and_close())
        except* LoadError as errors:
            raise errors.exceptions[0] from None
        elapsed, cpu = self.now(), time.process_time() - cpu
        return Responses(self._due, self._seconds, self._status, elapsed, cpu)

    def now(self) -> float:
        return time.perf_counter() - self._start

    async def send(self, index: int, due: float) -> None:
        self._due[index] = due
        try:
            connection = self._idle_connection()
            if connection is None:
                connection = _Connection(*await asyncio.open_connection(HOST, self._port))
                self._connections.append(connection)
            async with asyncio.timeout(TIMEOUT_SECONDS):
                self._status[index] = await connection.send(self._requests[index])
        except OSError:  # includes TimeoutError
            self._status[index] = FAILED
        else:
            if connection.is_open:
                self._idle.append(connection)
        self._seconds[index] = self.now() - due

    def _idle_connection(self) -> "_Connection | None":
        oldest = time.perf_counter() - _MAX_IDLE_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open and connection.last_used > oldest:
                return connection
            connection.close()
        return None


class _Connection:
    """A connection that carries one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.last_used = 0.0
        self._reader, self._writer = reader, writer
        self._parser = httptools.HttpResponseParser(self)
        self._complete = self._has_retry_after = False

    @property
    def is_open(self) -> bool:
        return not self._writer.is_closing()

    def close(self) -> None:
        self._writer.close()

    async def send(self, request: bytes) -> int:
        """Send a request and return the status of the response."""
        self._complete = self._has_retry_after = False
        self._writer.write(request)
        while not self._complete:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise ConnectionResetError
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserError as error:
                raise LoadError(f"Invalid HTTP response: {error}.") from None
        status = self._parser.get_status_code()
        if status == TOO_MANY_REQUESTS and not self._has_retry_after:
            raise LoadError("A response with 429 has no Retry-After in seconds.")
        self.last_used = time.perf_counter()
        return status

    def on_header(self, name: bytes, value: bytes) -> None:
        """Callback of the parser."""
        self._has_retry_after |= name.lower() == b"retry-after" and value.isdigit()

    def on_message_complete(self) -> None:
        """Callback of the parser."""
        self._complete = True
        if not self._parser.should_keep_alive():
            self.close()
