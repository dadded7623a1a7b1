"""Progress on stderr: a bar on a terminal, elsewhere a plain line every few seconds."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import Protocol, TypeVar

from tqdm import tqdm

INTERVAL = 5  # seconds between lines

T = TypeVar("T", covariant=True)


class Countable(Iterable[T], Sized, Protocol[T]):
    """Items to iterate over, of known number."""


class Progress:
    """The progress of one phase of a command."""

    def __init__(
        self, phase: str, total: int, unit: str, start: int = 0, shown: bool = True
    ) -> None:
        """Start a phase.

        Args:
            phase: its name.
            total: the number of units in it.
            unit: what is counted, in the plural.
            start: units that were done earlier, if it is resumed.
            shown: whether to show anything.
        """
        is_terminal = sys.stderr.isatty()
        self._bar = tqdm(
            total=total,
            initial=start,
            desc=phase,
            unit=f" {unit}",
            disable=not (shown and is_terminal),
        )
        self._lines = shown and not is_terminal
        self._phase, self._total, self._unit = phase, total, unit
        self._start, self._done, self._printed = start, start, start
        self._started = self._last = time.monotonic()
        self._figures: Mapping[str, str] = {}

    def update(self, count: int = 1) -> None:
        """Record that `count` more units are done."""
        self._bar.update(count)
        self._done += count
        if self._lines and time.monotonic() - self._last >= INTERVAL:
            self._print()

    def show(self, figures: Mapping[str, str]) -> None:
        """Set the figures beside the bar or in the line."""
        self._bar.set_postfix(figures)
        self._figures = figures

    def close(self) -> None:
        """End the phase, with a last line if it is complete."""
        self._bar.close()
        if self._lines and self._printed < self._done >= self._total:
            self._print()

    def _print(self) -> None:
        self._last, self._printed = time.monotonic(), self._done
        elapsed = self._last - self._started
        parts = [f"{self._phase}: {self._done:,}/{self._total:,} {self._unit}"]
        parts += [f"{name} {value}" for name, value in self._figures.items()]
        parts.append(f"{tqdm.format_interval(elapsed)} elapsed")
        if self._start < self._done < self._total:
            left = elapsed / (self._done - self._start) * (self._total - self._done)
            parts.append(f"{tqdm.format_interval(left)} left")
        print(", ".join(parts), file=sys.stderr, flush=True)


def track(items: Countable[T], phase: str, unit: str) -> Iterator[T]:
    """Yield the items, with progress."""
    progress = Progress(phase, len(items), unit)
    try:
        for item in items:
            yield item
            progress.update()
    finally:
        progress.close()
