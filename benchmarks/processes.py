"""Systems under test, each in a process of its own, without shared threads or memory."""

import http.client
import json
import multiprocessing
import os
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.load_generator import HOST, Responses, closed_loop, open_loop

_START_SECONDS = 120.0
_POLL_SECONDS = 0.005
_LOG_BYTES = 2000  # of the log's end, shown if a process exits
_target: Any = None  # in a worker process: the object that calls go to


class Worker:
    """An object that lives in another process; calls are forwarded."""

    def __init__(self, factory: Callable[..., Any], *arguments: object) -> None:
        self._pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        self._pool.submit(_create, factory, arguments).result()

    def __call__(self, *arguments: object) -> Any:
        """Call the object."""
        return self.call("__call__", *arguments)

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method of the object; raises what the method raises."""
        return self._pool.submit(_call, method, arguments).result()

    def close(self) -> None:
        """End the process."""
        self._pool.shutdown()


class ForeignWorker:
    """A `Worker` in another interpreter, whose program reads and writes JSON lines."""

    def __init__(self, command: Sequence[str | Path], environment: Mapping[str, str]) -> None:
        """Start the program; raise RuntimeError with the end of its log if it exits."""
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the process
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        try:
            self._receive()
        except BaseException:
            self.close()
            raise

    def __call__(self, *arguments: object) -> Any:
        """Call the object."""
        return self.call("__call__", *arguments)

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method of the object."""
        assert self._process.stdin
        self._process.stdin.write(json.dumps([method, arguments]).encode() + b"\n")
        self._process.stdin.flush()
        return self._receive()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def _receive(self) -> Any:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            code, log = self._process.wait(), end_of_log(self._log)
            raise RuntimeError(f"A worker exited with {code}:\n{log}")
        return json.loads(line)


def _create(factory: Callable[..., Any], arguments: Sequence[object]) -> None:
    global _target
    _target = factory(*arguments)


def _call(method: str, arguments: Sequence[object]) -> Any:
    return getattr(_target, method)(*arguments)


class Sample(NamedTuple):
    """Resources of a server at one moment."""

    seconds: float  # since its start
    megabytes: float  # resident
    files: int  # open descriptors, connections included
    threads: int


class Server:
    """A running HTTP server on this host."""

    def __init__(
        self,
        command: Sequence[str | Path],
        port: int,
        ready_path: str,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> None:
        """Start the command, in a directory, and wait until `ready_path` returns 200."""
        self.port = port
        self._start = time.perf_counter()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the server
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **(environment or {})},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        try:
            self._wait(ready_path)
        except BaseException:
            self.close()
            raise
        self.start_seconds = time.perf_counter() - self._start

    @property
    def pid(self) -> int:
        """The server's process id."""
        return self._process.pid

    def sample(self) -> Sample:
        """Memory, open files and threads now."""
        process = Path(f"/proc/{self._process.pid}")
        pages = int((process / "statm").read_text().split()[1])
        megabytes = pages * os.sysconf("SC_PAGESIZE") / 1e6
        files, threads = (len(list((process / part).iterdir())) for part in ("fd", "task"))
        return Sample(time.perf_counter() - self._start, megabytes, files, threads)

    def cpu_seconds(self) -> float:
        """CPU time so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def closed_loop(self, requests: Sequence[bytes], clients: int) -> Responses:
        """Send all requests; each client sends its next one when it has received a response."""
        responses = closed_loop(self.port, requests, clients)
        self.check()
        return responses

    def open_loop(self, requests: Sequence[bytes], due: NDArray[np.float64]) -> Responses:
        """Send each request when it is due, in seconds from now."""
        responses = open_loop(self.port, requests, due)
        self.check()
        return responses

    def check(self) -> None:
        """Raise RuntimeError with the end of the log if the server has exited."""
        if self._process.poll() is not None:
            log = end_of_log(self._log)
            raise RuntimeError(f"A server exited with {self._process.returncode}:\n{log}")

    def close(self) -> None:
        """Kill the server."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _wait(self, ready_path: str) -> None:
        url = f"http://{HOST}:{self.port}{ready_path}"
        while time.perf_counter() < self._start + _START_SECONDS:
            self.check()
            # OSError includes HTTPError, raised for a status of 400 or above.
            with suppress(OSError, http.client.HTTPException):
                urllib.request.urlopen(url, timeout=10).close()
                return
            time.sleep(_POLL_SECONDS)
        raise RuntimeError(f"A server was not ready within {_START_SECONDS:g} s.")


def end_of_log(log: IO[bytes]) -> str:
    """The last lines of a log."""
    log.seek(max(0, log.seek(0, os.SEEK_END) - _LOG_BYTES))
    return log.read().decode(errors="replace")


@contextmanager
def monitored(server: Server) -> Iterator[list[Sample]]:
    """Sample a server once a second; the list grows in the background."""
    samples, stop = [server.sample()], threading.Event()

    def run() -> None:
        while not stop.wait(1.0):
            samples.append(server.sample())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        stop.set()
        thread.join()


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
