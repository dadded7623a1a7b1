"""The thread that computes, so that the event loop never does."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from model_store import LatteMixError

T = TypeVar("T")


class OverloadedError(LatteMixError):
    """More work is waiting than the service is set to hold."""


class Worker:
    """Runs one job at a time, in order; ONNX Runtime spreads each over the cores by itself."""

    def __init__(self, max_waiting: int) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="lattemix-worker")
        self._max_waiting = max_waiting
        self._pending = 0

    async def run(self, job: Callable[[], T]) -> T:
        """Await the job's result, or raise `OverloadedError` at once if too many wait already."""
        if self._pending > self._max_waiting:
            raise OverloadedError(
                f"{self._max_waiting} requests are waiting already, as many as "
                "LATTEMIX_MAX_WAITING allows: try again in a moment."
            )
        self._pending += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, job)
        finally:
            self._pending -= 1

    def close(self) -> None:
        """Drop what waits, wait for what runs."""
        self._executor.shutdown(cancel_futures=True)
