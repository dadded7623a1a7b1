"""Contestants in processes of their own: nothing shares threads or memory with another."""

import contextlib
import http.client
import multiprocessing
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from benchmarks.load import HOST

FIRST_PORT = 18100
_PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.005
_LAST_WORDS = 2000  # bytes of a log


class Worker:
    """Something made in a process of its own, and called from here."""

    def __init__(self, make: Callable[..., Callable[..., Any]], *arguments: object) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs, make, arguments), daemon=True)
        self._process.start()
        theirs.close()
        self._result()

    def __call__(self, *arguments: object) -> Any:
        """What the thing returns for these arguments."""
        return self.call("__call__", *arguments)

    def call(self, method: str, *arguments: object) -> Any:
        """What a method of it returns."""
        self._pipe.send((method, arguments))
        return self._result()

    def begin(self, *arguments: object) -> None:
        """Call it, but do something else meanwhile."""
        self._pipe.send(("__call__", arguments))

    def end(self) -> Any:
        """What that call returned."""
        return self._result()

    def peak_bytes(self) -> int:
        """The most memory that it ever had."""
        return memory(self._process.pid or 0, "VmHWM")

    def close(self) -> None:
        """End the process."""
        with contextlib.suppress(BrokenPipeError):
            self._pipe.send(None)
        self._process.join(10)
        self._process.kill()

    def _result(self) -> Any:
        try:
            result = self._pipe.recv()
        except EOFError:
            raise RuntimeError("A contestant's process ended.") from None
        if isinstance(result, Exception):
            raise result
        return result


def _work(pipe: Connection, make: Callable[..., Callable[..., Any]], arguments: Any) -> None:
    try:
        thing = make(*arguments)
        pipe.send(None)
        while (call := pipe.recv()) is not None:
            method, given = call
            pipe.send(getattr(thing, method)(*given))
    except Exception as error:
        pipe.send(error)


class Server:
    """A server that answers on a port."""

    def __init__(
        self, command: Sequence[str | Path], port: int, ready: str, environment: Mapping[str, str]
    ) -> None:
        self.port = port
        start = time.perf_counter()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the server
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        try:
            self._wait(ready)
        except BaseException:
            self.close()
            raise
        self.start_seconds = time.perf_counter() - start  # from nothing to the first 200

    @property
    def resident_bytes(self) -> int:
        """The memory that it has."""
        return memory(self._process.pid, "VmRSS")

    @property
    def descriptors(self) -> int:
        """Files and connections that it has open."""
        return sum(1 for _ in Path(f"/proc/{self._process.pid}/fd").iterdir())

    @property
    def threads(self) -> int:
        """That it has."""
        return sum(1 for _ in Path(f"/proc/{self._process.pid}/task").iterdir())

    @property
    def cpu_seconds(self) -> float:
        """How long it has computed."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(") ")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of what is there."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def check(self) -> None:
        """Raise, with the last that it said, if it has ended."""
        if self._process.poll() is not None:
            self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _LAST_WORDS))
            last = self._log.read().decode(errors="replace")
            name = Path(str(self._process.args[0])).name  # type: ignore[index]
            raise RuntimeError(f"{name} ended with {self._process.returncode}:\n{last}")

    def close(self) -> None:
        """Stop it, without waiting for what it does."""
        self._process.kill()
        self._process.wait()
        self._log.close()

    def _wait(self, ready: str) -> None:
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            self.check()
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.get(ready)[0] == 200:
                    return
            time.sleep(_LOOK_SECONDS)
        raise RuntimeError(f"{self._process.args!r} was not ready in {_PATIENCE_SECONDS:g} s.")


def free_port() -> int:
    """The first port from `FIRST_PORT` on that nobody has."""
    for port in range(FIRST_PORT, FIRST_PORT + 100):
        with socket.socket() as attempt, contextlib.suppress(OSError):
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind((HOST, port))
            return port
    raise RuntimeError(f"No port from {FIRST_PORT} on is free.")


def memory(process: int | str, what: str) -> int:
    """Bytes of a line of the process's status: VmRSS is what it has, VmHWM the most it had."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == what:
            return int(value.split()[0]) * 1024
    raise RuntimeError(f"Process {process} has ended.")
