"""A server process that is killed, loses its files or runs out of file descriptors."""

import asyncio
import os
import resource
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import numpy as np
import pytest

from model_store import Store
from model_store.manifest import CENTRE, file_record
from tests.app.conftest import LATTEMIX, PATIENCE, eventually, serving
from tests.reliability.conftest import connect, metric_values, post_similarity
from tests.tiny import SENTENCES


def test_restarts_on_the_same_port_after_sigkill(store: Store) -> None:
    async def load(process: subprocess.Popen[str], url: str) -> list[int | None]:
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:

            async def post(number: int) -> int | None:
                inputs = [f"{sentence} {number}" for sentence in SENTENCES]
                try:
                    response = await client.post("/embed", json={"inputs": inputs})
                except httpx.TransportError:
                    return None
                if number == 20:
                    process.send_signal(signal.SIGKILL)
                return response.status_code

            return await asyncio.gather(*map(post, range(200)))

    with serving(store, LATTEMIX_MAX_WAIT_SECONDS="60") as (process, url):
        before = post_similarity(url)
        statuses = asyncio.run(load(process, url))
        assert process.wait(PATIENCE) == -signal.SIGKILL
    assert set(statuses) == {200, None}  # no request hangs or gets another status
    with serving(store, port=int(url.rpartition(":")[2])) as (_, again):
        assert again == url
        assert post_similarity(url) == pytest.approx(before, abs=1e-6)


def start_error(store: Store) -> str:
    """Return the error output of a server that does not start."""
    command = [LATTEMIX, "serve", "--port", "0", "--store", str(store.root), "--model", "tiny"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert process.returncode == 1
    return process.stderr


def damage(path: Path) -> None:
    """Change a file in place, like a failing disk."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(byte ^ 0xFF for byte in content[middle : middle + 64])
    with path.open("r+b") as file:
        file.write(content)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("harm", [damage, truncate, Path.unlink])
def test_reports_damaged_files_at_the_next_start(
    private_store: Store, harm: Callable[[Path], None]
) -> None:
    artifact = private_store.open("tiny")
    with serving(private_store, LATTEMIX_CACHE_BYTES="0") as (_, url):
        before = post_similarity(url)
        for path in (artifact.model, artifact.tokenizer):
            harm(path)
        assert post_similarity(url) == before
    message = start_error(private_store)
    broken = next(name for name in artifact.manifest.files if name in message)
    assert str(artifact.path / broken) in message
    assert "lattemix build" in message
    assert "Traceback" not in message


def republish(store: Store) -> None:
    """Publish the model again, with another centre."""
    old = store.open("tiny")
    with store.publish("tiny", "fp32") as staging:
        shutil.copytree(old.path, staging, dirs_exist_ok=True)
        centre = np.load(staging / CENTRE)
        np.save(staging / CENTRE, np.roll(centre, 1, axis=0))
        files = old.manifest.files | {CENTRE: file_record(staging / CENTRE)}
        old.manifest.model_copy(update={"files": files}).write(staging)


def test_serves_a_replaced_model_after_a_restart(private_store: Store) -> None:
    with serving(private_store, LATTEMIX_CACHE_BYTES="0") as (_, url):
        before = post_similarity(url, "centred")
        republish(private_store)
        assert post_similarity(url, "centred") == before
    with serving(private_store) as (_, url):
        assert post_similarity(url, "centred") != pytest.approx(before, abs=1e-3)


def test_serves_open_connections_without_free_file_descriptors(store: Store) -> None:
    with serving(store) as (process, url), httpx.Client(base_url=url, timeout=PATIENCE) as client:
        assert client.get("/health").status_code == 200
        used = len(os.listdir(f"/proc/{process.pid}/fd"))
        limit = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used + 10, limit[1]))
        with ExitStack() as connections:
            for _ in range(100):
                connections.enter_context(connect(url))
            eventually(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) >= used + 9)
            for _ in range(20):
                assert client.get("/health").status_code == 200
                response = client.post("/embed", json={"inputs": ["a dog", "a sea"]})
                assert response.status_code == 200
            assert process.poll() is None
        post_similarity(url)  # on a new connection
        eventually(lambda: metric_values(url).total("process_open_fds") <= used + 2)
