"""A server's memory, open files and threads, looked at while something is asked of it."""

import threading
import time
from typing import NamedTuple

from benchmarks.processes import Server


class Sample(NamedTuple):
    """A server at a moment."""

    seconds: float
    megabytes: float
    files: int
    threads: int


class Watch:
    """Looks every second, in a thread."""

    def __init__(self, server: Server) -> None:
        self.start = time.perf_counter()
        self._server = server
        self.samples = [self._sample()]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(1.0):
            self.samples.append(self._sample())

    def _sample(self) -> Sample:
        seconds = time.perf_counter() - self.start
        megabytes = self._server.resident_bytes / 1e6
        return Sample(seconds, megabytes, self._server.descriptors, self._server.threads)
