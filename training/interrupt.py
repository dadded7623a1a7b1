"""SIGINT and SIGTERM as an exception that never splits a training step."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupted(BaseException):
    """The user, or the system, asked this process to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class _State:
    """The first signal received, and whether it has to wait."""

    received: int | None = None
    deferred = False

    @classmethod
    def check(cls) -> None:
        if cls.received is not None and not cls.deferred:
            raise Interrupted(cls.received)


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise `Interrupted` on the first SIGINT or SIGTERM; the same again ends the process at once.

    A signal that the parent process has set to be ignored stays ignored. Of several processes that
    share a run, only the first has anything to save.
    """
    is_first = os.environ.get("RANK", "0") == "0"
    handlers = {number: signal.getsignal(number) for number in _SIGNALS}
    replaced = {
        n: handler for n, handler in handlers.items() if handler not in (signal.SIG_IGN, None)
    }
    for number in replaced:
        signal.signal(number, _receive if is_first else signal.SIG_DFL)
    try:
        yield
    finally:
        _State.received = None
        for number, handler in replaced.items():
            signal.signal(number, handler)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer `Interrupted` to the end of the block."""
    _State.check()  # an exception raised in a finaliser was lost
    _State.deferred = True
    try:
        yield
    finally:
        _State.deferred = False
    _State.check()


def ignore_signals() -> None:
    """Ignore SIGINT and SIGTERM for the rest of an `interruptible` block, once its work is done."""
    for number in _SIGNALS:
        if signal.getsignal(number) is _receive:
            signal.signal(number, signal.SIG_IGN)


def _receive(number: int, frame: FrameType | None) -> None:
    if _State.received == number:
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
    if _State.received is None:  # torchrun answers SIGINT with SIGTERM to all its processes
        _State.received = number
        _State.check()
