import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from app.server import create_app
from app.settings import Settings
from lattemix import cli
from model_store import Store

LATTEMIX = str(Path(sys.executable).parent / "lattemix")


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


@contextmanager
def serving(
    store: Store, model: str = "tiny", port: int = 0, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `lattemix serve`; yield the process and its URL once it is ready."""
    command = [LATTEMIX, "serve", "--port", str(port), "--store", str(store.root)]
    command += ["--model", model]
    # Log to a file: a pipe that is not read would fill up and block the process.
    with (
        tempfile.NamedTemporaryFile("w+", suffix=".log") as log,
        subprocess.Popen(command, stderr=log, text=True, env=os.environ | environment) as process,
    ):
        try:
            yield process, _url(process, Path(log.name))
        finally:
            process.kill()


def _url(process: subprocess.Popen[str], log: Path) -> str:
    for _ in range(600):
        match = re.search(r"curl (http://\S+)/similarity", log.read_text())
        if match:
            return match[1]
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(f"The server did not start: {log.read_text()}")


def failure(response: httpx.Response) -> tuple[int, str, str]:
    """Status, type and message of an error response."""
    body = response.json()
    assert set(body) == {"error", "error_type"}
    return response.status_code, body["error_type"], body["error"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run `lattemix` in this process; return its exit code, output and error output."""
    sys.argv = ["lattemix", *arguments]
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    captured = capsys.readouterr()
    if isinstance(stopped.value.code, str):  # sys.exit prints it
        return 1, captured.out, stopped.value.code
    return stopped.value.code or 0, captured.out, captured.err
