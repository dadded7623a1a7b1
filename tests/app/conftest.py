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
    """A process of `lattemix serve` on a model, and its URL once it answers."""
    command = [LATTEMIX, "serve", "--port", str(port), "--store", str(store.root)]
    command += ["--model", model]
    # Its log goes to a file: a pipe that nobody reads would fill up and stop it.
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
        found = re.search(r"curl (http://\S+)/similarity", log.read_text())
        if found:
            return found[1]
        assert process.poll() is None, log.read_text()
        time.sleep(0.05)
    raise AssertionError(f"It did not start: {log.read_text()}")


def failure(response: httpx.Response) -> tuple[int, str, str]:
    """The status, the type and the sentence of an answer that must be an error."""
    body = response.json()
    assert set(body) == {"error", "error_type"}
    return response.status_code, body["error_type"], body["error"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run `lattemix` in this process; return its exit code, output and error output."""
    sys.argv = ["lattemix", *arguments]
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    captured = capsys.readouterr()
    if isinstance(stopped.value.code, str):  # what sys.exit prints on its own
        return 1, captured.out, stopped.value.code
    return stopped.value.code or 0, captured.out, captured.err
