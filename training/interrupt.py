"""SIGINT and SIGTERM as an exception that is never raised within a training step."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """SIGINT or SIGTERM was received."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class _State:
    """The first signal received, and whether raising `Interrupted` is deferred."""

    received: int | None = None
    deferred = False

    @classmethod
    def check(cls) -> None:
        if cls.received is not None and not cls.deferred:
            raise Interrupted(cls.received)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `Interrupted` on the first SIGINT or SIGTERM; the same signal again kills the process.

    Signals that the parent process ignores stay ignored. Under torchrun only the first process has
    anything to save; the others are killed at once.
    """
    handler = _receive if os.environ.get("RANK", "0") == "0" else signal.SIG_DFL
    previous = {number: signal.getsignal(number) for number in _SIGNALS}
    replaced = {n: old for n, old in previous.items() if old not in (signal.SIG_IGN, None)}
    for number in replaced:
        signal.signal(number, handler)
    try:
        yield
    finally:
        _State.received = None
        for number, old in replaced.items():
            signal.signal(number, old)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer `Interrupted` to the end of the block."""
    _State.check()  # raise again: Python discards exceptions raised in __del__
    _State.deferred = True
    try:
        yield
    finally:
        _State.deferred = False
    _State.check()


def ignore_signals() -> None:
    """Ignore SIGINT and SIGTERM for the rest of an `interruptible` block."""
    for number in _SIGNALS:
        if signal.getsignal(number) is _receive:
            signal.signal(number, signal.SIG_IGN)


def _receive(number: int, frame: FrameType | None) -> None:
    if _State.received == number:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    if _State.received is None:  # torchrun sends SIGTERM to all its processes on SIGINT
        _State.received = number
        _State.check()
