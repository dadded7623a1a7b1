import json
import logging
import re
from collections.abc import Iterator

import pytest

from app.observe import logs

NAMES = ("lattemix", "uvicorn", "uvicorn.error", "uvicorn.access", "opentelemetry")


@pytest.fixture(autouse=True)
def _restore_loggers() -> Iterator[None]:
    """`configure` changes the loggers of the process, which other tests share."""
    loggers = [logging.getLogger(name) for name in NAMES]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def log(message: str = "request", name: str = "lattemix", **fields: object) -> None:
    logging.getLogger(name).info(message, extra={"fields": fields})


def test_text_format(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "text")
    log(id="a-1", path="/v1/{name}", status=200, ms=12.3)
    output = capsys.readouterr()
    assert output.out == ""
    time, rest = output.err.split(" ", 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", time)
    assert rest == "INFO request id=a-1 path=/v1/{name} status=200 ms=12.3\n"


def test_time_is_utc() -> None:
    record = logging.makeLogRecord({"msg": "x", "created": 1_795_000_000.1239, "levelname": "INFO"})
    assert logs.TextFormatter().format(record) == "2026-11-18T11:06:40.123Z INFO x"


def test_json_format(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "json")
    log(id="a-1", path="/embed", status=200, ms=12.3)
    (line,) = capsys.readouterr().err.splitlines()
    event = json.loads(line)
    assert event.pop("time").endswith("Z")
    assert event == {
        "level": "INFO",
        "message": "request",
        "id": "a-1",
        "path": "/embed",
        "status": 200,
        "ms": 12.3,
    }


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("", '""'),
        ("a b", '"a b"'),
        ("a=b", '"a=b"'),
        ('"', r'"\""'),
        ("a\\nb", r'"a\\nb"'),
        ("a\nb", r'"a\nb"'),
        ("a\r\nb", r'"a\r\nb"'),
        ("\x1b[2J", r'"\u001b[2J"'),
        ("\x7f\x85", r'"\x7f\x85"'),
        ("\u2028\u202e", r'"\u2028\u202e"'),
        ("\ud800", r'"\ud800"'),
        ("café", '"café"'),
    ],
)
def test_quotes_values_with_special_characters(
    value: str, shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("info", "text")
    log(path=value)
    assert capsys.readouterr().err.partition("request ")[2] == f"path={shown}\n"


FORGED = "/\n2026-11-16T13:00:00.123Z INFO request status=200\r\x85\u2028\x0b\x1b[2J"


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_value_message_or_exception_can_forge_a_line(
    form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.configure("info", form)
    try:
        raise ValueError(FORGED)
    except ValueError:
        logging.getLogger("lattemix").exception("failed " + FORGED, extra={"fields": {"x": FORGED}})
    output = capsys.readouterr().err
    assert "\x1b" not in output
    lines = output.splitlines()
    assert len([line for line in lines if not line.startswith("    ")]) == 1
    assert "ERROR" in lines[0]
    if form == "json":
        (line,) = lines
        event = json.loads(line)
        assert event["x"] == FORGED
        assert event["exception"].startswith("Traceback")
        assert "ValueError: /" in event["exception"]
    else:
        assert "    Traceback (most recent call last):" in lines
        assert any(line.startswith("    ValueError: /") for line in lines)


def test_respects_the_level(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("warning", "text")
    log()
    logging.getLogger("lattemix").warning("careful")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("Z WARNING careful")
    logs.configure("debug", "text")
    logging.getLogger("lattemix").debug("detail")
    assert capsys.readouterr().err.endswith("Z DEBUG detail\n")


def test_formats_uvicorn_errors_and_drops_its_access_log(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("info", "json")
    log("Exception in ASGI application\n", "uvicorn.error")
    log('"GET /?q=secret HTTP/1.1" 200', "uvicorn.access")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "Exception in ASGI application"
    # uvicorn checks this before it formats access lines.
    assert not logging.getLogger("uvicorn.access").hasHandlers()


def test_configuring_twice_does_not_duplicate_lines(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("info", "text")
    logs.configure("info", "text")
    log("once")
    log("once", "uvicorn.error")
    assert capsys.readouterr().err.count("once") == 2
