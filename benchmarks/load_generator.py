"""Sends HTTP requests in a closed or an open loop, and times the responses.

The generator shares the machine with the server that it measures, so it does little: requests are
bytes prepared beforehand, and response bodies are discarded. Its own CPU time is measured too.
"""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, cast

import httptools
import numpy as np
import uvloop
from numpy.typing import NDArray

HOST = "127.0.0.1"
OK, TOO_MANY_REQUESTS = 200, 429
FAILED = 0  # status of a request without a response
TIMEOUT_SECONDS = 120.0
_TICK_SECONDS = 0.001  # arrivals within a tick are sent together: waking up is costly
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

    async def send_all(load: _Load) -> None:
        indices = iter(range(len(requests)))

        async def client() -> None:
            for index in indices:
                await load.send(index, load.now())

        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(client())

    return _Load(port, requests).run(send_all)


def open_loop(port: int, requests: Sequence[bytes], due: NDArray[np.float64]) -> Responses:
    """Send each request when it is due, whether or not earlier ones have been answered."""

    async def send_all(load: _Load) -> None:
        async with asyncio.TaskGroup() as group:
            for index, moment in enumerate(due.tolist()):
                if (delay := moment - load.now()) > 0:
                    await asyncio.sleep(max(delay, _TICK_SECONDS))
                group.create_task(load.send(index, moment))

    return _Load(port, requests).run(send_all)


class _Load:
    """Requests to one server over a pool of keep-alive connections."""

    def __init__(self, port: int, requests: Sequence[bytes]) -> None:
        self._port = port
        self._requests = requests
        self._due = np.zeros(len(requests))
        self._seconds = np.zeros(len(requests))
        self._status = np.full(len(requests), FAILED)
        self._idle: list[_Connection] = []
        self._start = 0.0

    def run(self, send_all: Callable[["_Load"], Awaitable[None]]) -> Responses:
        async def timed() -> float:
            self._start = time.perf_counter()
            await send_all(self)
            for connection in self._idle:
                connection.close()
            return self.now()

        cpu = time.process_time()
        try:
            elapsed = uvloop.run(timed())
        except* LoadError as errors:
            raise errors.exceptions[0] from None
        cpu = time.process_time() - cpu
        return Responses(self._due, self._seconds, self._status, elapsed, cpu)

    def now(self) -> float:
        return time.perf_counter() - self._start

    async def send(self, index: int, due: float) -> None:
        self._due[index] = due
        try:
            connection = self._idle_connection() or await self._connect()
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

    async def _connect(self) -> "_Connection":
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(_Connection, HOST, self._port)
        return connection


class _Connection(asyncio.Protocol):
    """A connection that carries one request at a time."""

    def __init__(self) -> None:
        self.last_used = 0.0
        self._parser = httptools.HttpResponseParser(self)
        self._response: asyncio.Future[int] | None = None
        self._has_retry_after = False

    @property
    def is_open(self) -> bool:
        return not self._transport.is_closing()

    def close(self) -> None:
        self._transport.close()

    def send(self, request: bytes) -> "asyncio.Future[int]":
        """Send a request; the future's result is the status of the response."""
        self._response = asyncio.get_running_loop().create_future()
        self._has_retry_after = False
        self._transport.write(request)
        return self._response

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(LoadError(f"Invalid HTTP response: {error}."))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Callback of the parser."""
        if name.lower() == b"retry-after" and value.isdigit():
            self._has_retry_after = True

    def on_message_complete(self) -> None:
        """Callback of the parser."""
        status = self._parser.get_status_code()
        if status == TOO_MANY_REQUESTS and not self._has_retry_after:
            self._fail(LoadError("A response with 429 has no Retry-After in seconds."))
            return
        if not self._parser.should_keep_alive():
            self._transport.close()
        self.last_used = time.perf_counter()
        if self._response and not self._response.done():
            self._response.set_result(status)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error if isinstance(error, OSError) else ConnectionResetError())

    def _fail(self, error: Exception) -> None:
        self._transport.close()
        if self._response and not self._response.done():
            self._response.set_exception(error)
