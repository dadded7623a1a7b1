"""A server process that is killed, whose files change under it, and that has no descriptors."""

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
from model_store.manifest import CENTRE, describe
from tests.app.conftest import LATTEMIX, serving
from tests.conftest import SENTENCES
from tests.reliability.conftest import PATIENCE, connect, counted, eventually, similar


def test_killed_under_load_it_is_back_on_the_same_port(store: Store) -> None:
    async def load(process: subprocess.Popen[str], url: str) -> list[int | None]:
        async with httpx.AsyncClient(base_url=url, timeout=PATIENCE) as client:

            async def ask(number: int) -> int | None:
                inputs = [f"{sentence} {number}" for sentence in SENTENCES]
                try:
                    answer = await client.post("/embed", json={"inputs": inputs})
                except httpx.TransportError:
                    return None
                if number == 20:
                    process.send_signal(signal.SIGKILL)
                return answer.status_code

            return await asyncio.gather(*map(ask, range(200)))

    with serving(store, LATTEMIX_MAX_WAIT_SECONDS="60") as (process, url):
        before = similar(url)
        statuses = asyncio.run(load(process, url))
        assert process.wait(PATIENCE) == -signal.SIGKILL
    assert set(statuses) == {200, None}  # nobody waits for ever, or is told something else
    with serving(store, port=int(url.rpartition(":")[2])) as (_, again):
        assert again == url
        assert similar(url) == pytest.approx(before, abs=1e-6)


def serve(store: Store) -> str:
    """What a server says that does not start."""
    command = [LATTEMIX, "serve", "--port", "0", "--store", str(store.root), "--model", "tiny"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert ended.returncode == 1
    return ended.stderr


def damage(path: Path) -> None:
    """Change a file in place, as a failing disk does."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 64] = bytes(byte ^ 0xFF for byte in content[middle : middle + 64])
    with path.open("r+b") as file:
        file.write(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


@pytest.mark.parametrize("harm", [damage, cut, Path.unlink])
def test_files_that_break_while_it_runs_are_noticed_at_the_next_start(
    private_store: Store, harm: Callable[[Path], None]
) -> None:
    artifact = private_store.open("tiny")
    with serving(private_store, LATTEMIX_CACHE_BYTES="0") as (_, url):
        before = similar(url)
        for path in (artifact.model, artifact.tokenizer):
            harm(path)
        assert similar(url) == before
    said = serve(private_store)
    broken = next(name for name in artifact.manifest.files if name in said)
    assert str(artifact.path / broken) in said
    assert "lattemix build" in said
    assert "Traceback" not in said


def replace(store: Store) -> None:
    """Publish the model again, with a centre somewhere else."""
    old = store.open("tiny")
    with store.publish("tiny", "fp32") as staging:
        shutil.copytree(old.path, staging, dirs_exist_ok=True)
        centre = np.load(staging / CENTRE)
        np.save(staging / CENTRE, np.roll(centre, 1, axis=0))
        files = old.manifest.files | {CENTRE: describe(staging / CENTRE)}
        old.manifest.model_copy(update={"files": files}).write(staging)


def test_a_model_that_is_replaced_is_served_from_the_next_start_on(private_store: Store) -> None:
    with serving(private_store, LATTEMIX_CACHE_BYTES="0") as (_, url):
        before = similar(url, "centred")
        replace(private_store)
        assert similar(url, "centred") == before
    with serving(private_store) as (_, url):
        assert similar(url, "centred") != pytest.approx(before, abs=1e-3)


def test_without_descriptors_it_goes_on_with_whom_it_has(store: Store) -> None:
    with serving(store) as (process, url), httpx.Client(base_url=url, timeout=PATIENCE) as known:
        assert known.get("/health").status_code == 200
        used = len(os.listdir(f"/proc/{process.pid}/fd"))
        limit = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (used + 10, limit[1]))
        with ExitStack() as crowd:
            for _ in range(100):
                crowd.enter_context(connect(url))
            eventually(lambda: len(os.listdir(f"/proc/{process.pid}/fd")) >= used + 9)
            for _ in range(20):
                assert known.get("/health").status_code == 200
                answer = known.post("/embed", json={"inputs": ["a dog", "a sea"]})
                assert answer.status_code == 200
            late = connect(url)
            late.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            assert process.poll() is None
        with late:  # the crowd has left: whoever waited is let in
            assert late.recv(100).startswith(b"HTTP/1.1 200 ")
        similar(url)
        eventually(lambda: counted(url).total("process_open_fds") <= used + 2)
