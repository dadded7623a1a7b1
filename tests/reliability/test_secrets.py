"""What is said in confidence is in no log and no metric, whatever becomes of the request."""

import json
import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from model_store import Store
from tests.app.conftest import LATTEMIX
from tests.reliability.conftest import PATIENCE, connect, eventually, posted
from tests.reliability.questions import JSON, NPY

KEY, WRONG = "k3y-of-ours", "k3y-of-theirs"
WORD = "xylophone"  # the tiny model does not know it, and nothing else says it
ASKED = [
    ("/embed", {"inputs": [WORD, f"a {WORD} dog"]}),
    ("/embed", {"inputs": WORD, "format": WORD}),
    ("/embed", {"inputs": [WORD, ""]}),
    ("/embed", {WORD: WORD}),
    ("/embed", {"inputs": WORD * 20_000}),
    ("/similarity", {"pairs": [[WORD, "a dog"]]}),
    ("/similarity", {"pairs": [[WORD]]}),
    ("/explain", {"pair": [WORD, f"the {WORD}"]}),
    ("/rank", {"query": WORD, "candidates": [f"some {WORD}", "a dog"]}),
    ("/rerank", {"query": WORD, "texts": [WORD]}),
    ("/matrix", {"inputs": [WORD, f"no {WORD}"]}),
    ("/v1/embeddings", {"input": WORD, "model": WORD}),
]


def ask_everything(url: str) -> set[int]:
    """Every kind of request, good and bad, by someone with a key and someone without."""
    statuses = set()
    for key in (KEY, WRONG):
        headers = {"authorization": f"Bearer {key}"}
        with httpx.Client(base_url=url, headers=headers, timeout=PATIENCE) as client:
            for path, body in ASKED:
                for accept in (JSON, NPY):
                    answer = client.post(path, json=body, headers={"accept": accept})
                    statuses.add(answer.status_code)
            for content in (WORD.encode(), f'{{"inputs": "{WORD}'.encode(), b"\xff" * 9):
                answer = client.post(
                    f"/embed?q={WORD}", content=content, headers={"content-type": JSON}
                )
                statuses.add(answer.status_code)
            statuses.add(client.get(f"/nowhere?{WORD}={key}").status_code)
    with connect(url) as leaving:  # in the midst of it
        leaving.sendall(posted("/embed", json.dumps({"inputs": WORD}).encode(), length=999))
    with connect(url) as nonsense:
        nonsense.sendall(f"{WORD} {KEY}\r\n\r\n".encode())
        nonsense.recv(100)
    return statuses


@pytest.mark.parametrize("form", ["text", "json"])
def test_no_sentence_and_no_key_is_written_anywhere(
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
            assert ask_everything(url) >= {200, 400, 401, 404, 413, 422}
            metrics = httpx.get(f"{url}/metrics", timeout=PATIENCE).text
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
    assert log.read_text().count("/embed") > 20  # all were logged
    for secret in (WORD, KEY, WRONG):
        assert secret not in log.read_text()
        assert secret not in metrics
