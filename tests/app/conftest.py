import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from app.run import Server, _bind, _listen
from app.server import create_app
from app.settings import Settings
from model_store import Store

PATIENCE = 30  # seconds; reached only by a hang
LATTEMIX = str(Path(sys.executable).parent / "lattemix")


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app(settings), raise_server_exceptions=False) as client:
        yield client


@contextmanager
def serving(
    store: Store, model: str = "tiny", port: int = 0, models: str = "", **environment: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Run `lattemix serve`; yield the process and its URL once it is ready."""
    command = [LATTEMIX, "serve", "--port", str(port), "--store", str(store.root)]
    command += ["--models", models] if models else ["--model", model]
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


@contextmanager
def serve_in_thread(settings: Settings) -> Iterator[tuple[Server, str]]:
    """Run a server in a thread; yield it and its URL."""
    listener = _bind(settings)
    _listen(listener, settings)
    server = Server(create_app(settings), settings)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        eventually(lambda: server.started)
        yield server, f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
    assert not thread.is_alive()


def eventually(condition: Callable[[], Any]) -> Any:
    """Return the first true value of the condition."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, "The condition never became true."
        time.sleep(0.01)
    return value


def failure(response: httpx.Response) -> tuple[int, str, str]:
    """Status, type and message of an error response."""
    body = response.json()
    if "/v1/" in str(response.url):
        assert set(body["error"]) == {"message", "type", "param", "code"}
        return response.status_code, body["error"]["code"], body["error"]["message"]
    assert set(body) == {"error", "error_type"}
    return response.status_code, body["error_type"], body["error"]
