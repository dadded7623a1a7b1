"""One log line per event on stderr, as text or JSON. No value can break or forge a line."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

_NUMBERS = (int, float)
_UNQUOTED = re.compile(r"[\w./:{}%+@*,-]+", re.ASCII)


def configure(level: str, format: str) -> None:
    """Log the service and uvicorn to stderr at `level`, formatted as `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    # OpenTelemetry reports an unreachable collector only in its log.
    for name in ("lattemix", "uvicorn", "opentelemetry"):
        _set(name, [handler], propagate=False)
        logging.getLogger(name).setLevel(level.upper())
    _set("uvicorn.error", [], propagate=True)
    # `Observe` logs every request, without the query string.
    _set("uvicorn.access", [], propagate=False)


def _set(name: str, handlers: list[logging.Handler], *, propagate: bool) -> None:
    logger = logging.getLogger(name)
    logger.handlers = handlers
    logger.propagate = propagate


class TextFormatter(logging.Formatter):
    """`2026-11-16T13:00:00.123Z INFO request id=7 path=/embed`; a traceback follows, indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one event; all lines but the first are indented."""
        line = f"{_time(record)} {record.levelname} {_printable(_message(record))}"
        for name, value in _fields(record).items():
            line += f" {name}={value if type(value) in _NUMBERS else _quoted(str(value))}"
        if record.exc_info:
            for part in self.formatException(record.exc_info).splitlines():
                line += f"\n    {_printable(part)}"
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one event."""
        event = {"time": _time(record), "level": record.levelname, "message": _message(record)}
        event |= _fields(record)
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str)  # ASCII: every control character is escaped


def _time(record: logging.LogRecord) -> str:
    time = datetime.fromtimestamp(record.created, UTC)
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    return record.getMessage().strip()  # some of uvicorn's messages end in a newline


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """Fields passed as `extra={"fields": {...}}`."""
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


def _quoted(value: str) -> str:
    """Quote a value that is empty or contains anything but plain characters."""
    if _UNQUOTED.fullmatch(value):
        return value
    return _printable(json.dumps(value, ensure_ascii=False))


def _printable(text: str) -> str:
    """Escape control characters, line ends and changes of text direction."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
