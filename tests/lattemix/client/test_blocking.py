"""The thread of `Client`: it must never keep a program from exiting."""

import asyncio
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from lattemix.client import Client
from model_store import LatteMixError, Store
from tests.app.conftest import serving
from tests.lattemix.client.conftest import Recorder

SECONDS = 60  # reached only by a hang


@pytest.fixture(scope="module")
def server_url(store: Store) -> Iterator[str]:
    with serving(store) as (_, url):
        yield url


def run_script(*lines: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "\n".join(("from lattemix.client import Client", *lines))]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS)


def test_script_that_never_closes_its_client_exits(server_url: str) -> None:
    ended = run_script(f"client = Client('{server_url}')", "print(client.info().model)")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "tiny\n", "")


def test_script_whose_first_call_fails_exits() -> None:
    ended = run_script("Client('http://127.0.0.1:9', retries=0).info()")
    assert ended.returncode == 1
    assert "LatteMixError: http://127.0.0.1:9 does not answer" in ended.stderr


def test_script_that_abandons_an_iterator_exits(server_url: str) -> None:
    ended = run_script(
        f"client = Client('{server_url}')",
        "rows = client.iter_encode(f'a dog {i}' for i in range(5000))",
        "print(next(rows).tokens)",
    )
    assert (ended.returncode, ended.stdout) == (0, "5\n")


def test_garbage_collected_client_ends_its_thread(server: Recorder) -> None:
    client = Client("http://server", transport=server)
    assert client.info().model == "tiny"
    thread = client._thread
    del client
    gc.collect()
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_closed_client_rejects_calls(server: Recorder) -> None:
    client = Client("http://server", transport=server)
    client.close()
    client.close()
    assert not client._thread.is_alive()
    with pytest.raises(LatteMixError, match="This client is closed"):
        client.info()
    with pytest.raises(LatteMixError, match="This client is closed"):
        next(client.iter_encode(["a dog"]))


def test_close_cancels_calls_of_other_threads() -> None:
    requested = threading.Event()

    async def never_answer(request: httpx.Request) -> httpx.Response:
        requested.set()
        await asyncio.sleep(SECONDS)
        raise AssertionError

    client = Client("http://server", transport=httpx.MockTransport(never_answer))
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(client.info)
        assert requested.wait(SECONDS)
        client.close()
        with pytest.raises(LatteMixError, match="closed during the call"):
            call.result(SECONDS)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_forked_client_rejects_calls_instead_of_hanging(server_url: str) -> None:
    ended = run_script(
        "import os",
        f"client = Client('{server_url}')",
        "child = os.fork()",
        "if child: os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))",
        "client.info()",
    )
    assert ended.returncode == 1
    assert "LatteMixError: This client was made in another process" in ended.stderr


@pytest.fixture
def sigint() -> Iterator[None]:
    """SIGINT raises `KeyboardInterrupt`; a shell's background job ignores it."""
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, previous)


@pytest.mark.usefixtures("sigint")
def test_interrupted_call_is_cancelled() -> None:
    cancelled = threading.Event()

    async def never_answer(request: httpx.Request) -> httpx.Response:
        await asyncio.sleep(0.5)  # until the main thread waits for the response
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await asyncio.sleep(SECONDS)
        finally:
            cancelled.set()
        raise AssertionError

    with Client("http://server", transport=httpx.MockTransport(never_answer)) as client:
        with pytest.raises(KeyboardInterrupt):
            client.info()
        assert cancelled.wait(SECONDS / 2)
