"""Sentences and keys never appear in logs or metrics."""

import json
import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from model_store import Store
from tests.app.conftest import LATTEMIX, PATIENCE, eventually
from tests.reliability.conftest import connect, raw_post
from tests.reliability.random_requests import JSON, NPY

KEY, INVALID_KEY = "k3y-valid", "k3y-invalid"
WORD = "xylophone"  # not in the tiny model's vocabulary, nor in any message
REQUESTS = [
    ("/embed", {"inputs": [WORD, f"a {WORD} dog"]}),
    ("/embed", {"inputs": WORD, "format": WORD}),
    ("/embed", {"inputs": [WORD, ""]}),
    ("/embed", {WORD: WORD}),
    ("/embed", {"inputs": WORD * 20_000}),
    ("/similarity", {"pairs": [[WORD, "a dog"]]}),
    ("/similarity", {"pairs": [[WORD]]}),
    ("/explain", {"pair": [WORD, f"the {WORD}"]}),
    ("/rank", {"query": WORD, "texts": [f"some {WORD}", "a dog"]}),
    ("/rerank", {"query": WORD, "texts": [WORD]}),
    ("/matrix", {"inputs": [WORD, f"no {WORD}"]}),
    ("/v1/embeddings", {"input": WORD, "model": WORD}),
]


def send_everything(url: str) -> set[int]:
    """Send valid and invalid requests of every kind, with and without a valid key."""
    statuses = set()
    for key in (KEY, INVALID_KEY):
        headers = {"authorization": f"Bearer {key}"}
        with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE) as client:
            for path, body in REQUESTS:
                for accept in (JSON, NPY):
                    response = client.post(path, json=body, headers={"accept": accept})
                    statuses.add(response.status_code)
            for content in (WORD.encode(), f'{{"inputs": "{WORD}'.encode(), b"\xff" * 9):
                response = client.post(
                    f"/embed?q={WORD}", content=content, headers={"content-type": JSON}
                )
                statuses.add(response.status_code)
            statuses.add(client.get(f"/nowhere?{WORD}={key}").status_code)
    with connect(url) as incomplete:
        incomplete.sendall(raw_post("/embed", json.dumps({"inputs": WORD}).encode(), length=999))
    with connect(url) as not_http:
        not_http.sendall(f"{WORD} {KEY}\r\n\r\n".encode())
        not_http.recv(100)
    return statuses


@pytest.mark.parametrize("form", ["text", "json"])
def test_logs_and_metrics_contain_no_sentence_and_no_key(
    store: Store, tmp_path: Path, form: str
) -> None:
    log = tmp_path / "log"
    settings = {
        "LATTEMIX_API_KEYS": KEY,
        "LATTEMIX_LOG_LEVEL": "debug",
        "LATTEMIX_LOG_FORMAT": form,
        "LATTEMIX_MAX_CHARACTERS": "100000",
        "LATTEMIX_DRAIN_SECONDS": "0",
    }
    command = [LATTEMIX, "serve", "--port", "0", "--store", store.root, "--model", "tiny"]
    with (
        log.open("w") as file,
        subprocess.Popen(command, stdout=file, stderr=file, env=os.environ | settings) as process,
    ):
        try:
            eventually(lambda: "curl http://" in log.read_text() or process.poll() is not None)
            url = log.read_text().partition("curl ")[2].partition("/similarity")[0]
            assert send_everything(url) >= {200, 400, 401, 404, 413, 422}
            metrics = httpx.get(f"{url}/metrics", timeout=PATIENCE).text
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
    assert log.read_text().count("/embed") > 20
    for secret in (WORD, KEY, INVALID_KEY):
        assert secret not in log.read_text()
        assert secret not in metrics
