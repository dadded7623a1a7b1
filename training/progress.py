"""Progress on stderr: a bar on a terminal, otherwise a line every few seconds."""

import io
import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

INTERVAL = 5.0  # seconds between lines

_LINE = "{desc}: {n_fmt}/{total_fmt} {unit}{postfix}, {elapsed} elapsed, {remaining} left"


class _Lines(io.TextIOBase):
    """Writes every refresh of a bar to stderr as a line."""

    def write(self, text: str) -> int:
        if line := text.strip():
            print(line, file=sys.stderr, flush=True)
        return len(text)


def progress_bar(
    phase: str,
    unit: str,
    items: Iterable[Any] | None = None,
    total: int | None = None,
    start: int = 0,
    shown: bool = True,
) -> Any:
    """Return a tqdm bar.

    Args:
        phase: the label.
        unit: what is counted, in the plural.
        items: items to iterate over; without them, call `update` and `close`.
        total: number of units, if `items` has no length.
        start: units done by an earlier process.
        shown: whether to show anything.
    """
    options: dict[str, Any] = {"unit": f" {unit}"}
    if not sys.stderr.isatty():
        options = {"unit": unit, "file": _Lines(), "bar_format": _LINE}
        options |= {"mininterval": INTERVAL, "miniters": 1}
    return tqdm(items, desc=phase, total=total, initial=start, disable=not shown, **options)
