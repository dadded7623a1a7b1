"""One line per event on stderr: for people, or as JSON. No value can break or forge a line."""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any

_NUMBERS = (int, float)
_PLAIN = re.compile(r"[\w./:{}%+@*,-]+", re.ASCII)


def configure(level: str, format: str) -> None:
    """Send the service's and uvicorn's logs to stderr, at `level`, as `text` or `json`."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if format == "json" else TextFormatter())
    # OpenTelemetry is here because it tells only its log when a collector does not answer.
    for name in ("lattemix", "uvicorn", "opentelemetry"):
        _set(name, [handler], propagate=False)
        logging.getLogger(name).setLevel(level.upper())
    _set("uvicorn.error", [], propagate=True)
    # `Observe` logs every request, and without its query string.
    _set("uvicorn.access", [], propagate=False)


def _set(name: str, handlers: list[logging.Handler], *, propagate: bool) -> None:
    logger = logging.getLogger(name)
    logger.handlers = handlers
    logger.propagate = propagate


class TextFormatter(logging.Formatter):
    """`2026-11-16T13:00:00.123Z INFO request id=7 path=/embed`; a traceback follows, indented."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one event; only its first line begins at the margin."""
        line = f"{_time(record)} {record.levelname} {_printable(_message(record))}"
        for name, value in _fields(record).items():
            line += f" {name}={value if type(value) in _NUMBERS else _quoted(str(value))}"
        if record.exc_info:
            for part in self.formatException(record.exc_info).splitlines():
                line += f"\n    {_printable(part)}"
        return line


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Render one event."""
        event = {"time": _time(record), "level": record.levelname, "message": _message(record)}
        event |= _fields(record)
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, default=str)  # ASCII: every control character is escaped


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _message(record: logging.LogRecord) -> str:
    return record.getMessage().strip()  # some of uvicorn's end in a newline


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller gave as `extra={"fields": {...}}`."""
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields


def _quoted(value: str) -> str:
    """`value` as it is, or in quotes where it could be taken for something else."""
    if _PLAIN.fullmatch(value):
        return value
    return _printable(json.dumps(value, ensure_ascii=False))


def _printable(text: str) -> str:
    """Escape what would move a terminal's cursor, end the line or turn its direction."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in text
    )
