"""No memory, and libraries that panic, at every place a request passes."""

import os
import resource
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import RuntimeException

from app.settings import Settings
from model_store import Store
from tests.app.conftest import failure, serving
from tests.reliability.conftest import PATIENCE, connect, counted, posted, served, similar
from tests.reliability.test_faults_model import PanicError

ROOM = 16_000_000  # bytes left to a process: for a few sentences, not for a large body


@pytest.mark.parametrize("fault", [MemoryError(), RuntimeException("std::bad_alloc")], ids=repr)
def test_no_memory_for_a_batch_fails_that_request_only(
    open_settings: Settings, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    def none(*feeds: object) -> None:
        raise fault

    with served(open_settings) as (server, url):
        encoder = server._engine.encoder
        with monkeypatch.context() as short:
            for session in {encoder._session, encoder._wide}:
                short.setattr(session, "run", none)
            answer = httpx.post(f"{url}/embed", json={"inputs": "a dog"}, timeout=PATIENCE)
            assert failure(answer)[:2] == (424, "Backend")
            assert httpx.get(f"{url}/ready", timeout=PATIENCE).status_code == 503
        assert httpx.get(f"{url}/ready", timeout=PATIENCE).status_code == 200
        similar(url)


@pytest.mark.parametrize("words", [2, 2000], ids=["on the loop", "in a thread"])
@pytest.mark.parametrize(
    ("fault", "status"), [(MemoryError, 500), (PanicError, 424), (SystemExit, 500)]
)
def test_a_tokenizer_that_fails_fails_that_request_only(
    open_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: type[BaseException],
    status: int,
    words: int,
) -> None:
    def broken(text: str) -> None:
        raise fault(text)

    with served(open_settings) as (server, url):
        with monkeypatch.context() as context:
            rust = SimpleNamespace(encode=broken, encode_batch_fast=broken)
            context.setattr(server._engine.encoder._tokenizer, "_tokenizer", rust)
            answer = httpx.post(f"{url}/embed", json={"inputs": "dog " * words}, timeout=PATIENCE)
            assert answer.status_code == status
            if fault is PanicError:
                assert failure(answer)[1] == "Backend"
                assert "The tokenizer failed: PanicError" in caplog.text
                assert "dog" not in caplog.text
        similar(url)
        engine = server._engine
        assert (engine._requests, engine._sentences, engine._characters) == (0, 0, 0)
        assert counted(url).total("lattemix_requests_total", "/embed", str(status)) == 1


def said(url: str, request: bytes) -> bytes:
    """How the answer begins, if there is one: an error, too, takes memory to write."""
    with connect(url) as client, suppress(ConnectionError):
        client.sendall(request)
        return client.recv(100)
    return b""


def test_a_process_without_memory_goes_on_with_what_fits(store: Store) -> None:
    """The system itself refuses to give it more."""
    large = posted("/embed", b'{"inputs": "a dog"%s}' % (b" " * 4 * ROOM))
    limits = {"LATTEMIX_MAX_BODY_BYTES": str(5 * ROOM), "LATTEMIX_MAX_INPUTS": str(ROOM)}
    with serving(store, **limits) as (process, url):
        similar(url)
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
        used = pages * os.sysconf("SC_PAGESIZE")
        before = resource.prlimit(process.pid, resource.RLIMIT_AS)
        resource.prlimit(process.pid, resource.RLIMIT_AS, (used + ROOM, before[1]))
        for _ in range(3):
            assert not said(url, large).startswith(b"HTTP/1.1 200 ")
            similar(url)
        resource.prlimit(process.pid, resource.RLIMIT_AS, before)
        assert said(url, large).startswith(b"HTTP/1.1 200 ")
