"""Out of memory and library panics, at every step of a request."""

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
from tests.app.conftest import PATIENCE, failure, serve_in_thread, serving
from tests.reliability.conftest import connect, metric_values, post_similarity, raw_post
from tests.reliability.test_faults_model import PanicError

FREE = 16_000_000  # bytes left to the process: enough for a few sentences, not for a large body


@pytest.mark.parametrize("error", [MemoryError(), RuntimeException("std::bad_alloc")], ids=repr)
def test_out_of_memory_in_a_batch_fails_only_that_request(
    open_settings: Settings, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(*feeds: object) -> None:
        raise error

    with serve_in_thread(open_settings) as (server, url):
        encoder = server._models.default.engine.encoder
        with monkeypatch.context() as context:
            for session in {encoder._session, encoder._wide}:
                context.setattr(session, "run", fail)
            response = httpx.post(f"{url}/embed", json={"inputs": "a dog"}, timeout=PATIENCE)
            assert failure(response)[:2] == (424, "Backend")
            assert httpx.get(f"{url}/ready", timeout=PATIENCE).status_code == 503
        assert httpx.get(f"{url}/ready", timeout=PATIENCE).status_code == 200
        post_similarity(url)


@pytest.mark.parametrize("words", [2, 2000], ids=["on the loop", "in a thread"])
@pytest.mark.parametrize(
    ("error", "status"), [(MemoryError, 500), (PanicError, 424), (SystemExit, 500)]
)
def test_failing_tokenizer_fails_only_that_request(
    open_settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: type[BaseException],
    status: int,
    words: int,
) -> None:
    def fail(text: str, **options: bool) -> None:
        raise error(text)

    with serve_in_thread(open_settings) as (server, url):
        with monkeypatch.context() as context:
            rust = SimpleNamespace(encode=fail, encode_batch_fast=fail)
            context.setattr(
                server._models.default.engine.encoder.tokenizer._words, "_tokenizer", rust
            )
            text = " ".join(f"dog{i}" for i in range(words))  # words that are not cached
            response = httpx.post(f"{url}/embed", json={"inputs": text}, timeout=PATIENCE)
            assert response.status_code == status
            if error is PanicError:
                assert failure(response)[1] == "Backend"
                assert "The tokenizer failed: PanicError" in caplog.text
                assert "dog" not in caplog.text
        post_similarity(url)
        engine = server._models.default.engine
        assert (engine.host.requests, engine.host._sentences, engine._characters) == (0, 0, 0)
        assert metric_values(url).total("lattemix_requests_total", "/embed", str(status)) == 1


def response_start(url: str, request: bytes) -> bytes:
    """Return the start of the response, if any: an error response needs memory, too."""
    with connect(url) as client, suppress(ConnectionError):
        client.sendall(request)
        return client.recv(100)
    return b""


def test_process_without_memory_serves_small_requests(store: Store) -> None:
    """The limit is the system's."""
    large = raw_post("/embed", b'{"inputs": "a dog"%s}' % (b" " * 4 * FREE))
    limits = {"LATTEMIX_MAX_BODY_BYTES": str(5 * FREE), "LATTEMIX_MAX_INPUTS": str(FREE)}
    with serving(store, **limits) as (process, url):
        post_similarity(url)
        pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[0])
        used = pages * os.sysconf("SC_PAGESIZE")
        before = resource.prlimit(process.pid, resource.RLIMIT_AS)
        resource.prlimit(process.pid, resource.RLIMIT_AS, (used + FREE, before[1]))
        for _ in range(3):
            assert not response_start(url, large).startswith(b"HTTP/1.1 200 ")
            post_similarity(url)
        resource.prlimit(process.pid, resource.RLIMIT_AS, before)
        assert response_start(url, large).startswith(b"HTTP/1.1 200 ")
