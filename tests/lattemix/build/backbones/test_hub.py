"""Backbones from a hub, served here: the real client against a small HTTP server."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from transformers import AutoModel

ROOT = Path(__file__).parents[2]
COMMIT = "0" * 40

OPEN_BACKBONE = """
import sys
from lattemix.build.backbones import BackboneError, open_backbone
try:
    with open_backbone(sys.argv[1]) as checkpoint:
        print(checkpoint.name, checkpoint.sha256, len(checkpoint.tensors()))
except BackboneError as error:
    print(error)
"""


class Hub:
    """The part of the hub's HTTP API that a download needs; `root/<repository>/<file>`."""

    def __init__(self, root: Path) -> None:
        self.root, self.downloads = root, list[str]()
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self._answer()

            def do_GET(self) -> None:
                self._answer()

            def _answer(self) -> None:
                body = hub.answer(self.path.partition("?")[0], self.command)
                self.send_response(404 if body is None else 200)
                if body is None:
                    self.send_header("X-Error-Code", "RepoNotFound")
                else:
                    self.send_header("X-Repo-Commit", COMMIT)
                    self.send_header("ETag", f'"{hashlib.sha1(body).hexdigest()}"')
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                if body and self.command == "GET":
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, path: str, method: str) -> bytes | None:
        """The body for a path, or None for 404."""
        if call := re.fullmatch(r"/api/models/(.+)/(revision|tree)/\w+", path):
            repository, listing = call.groups()
            files = sorted((self.root / repository).glob("*"))
            tree = [
                {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": _oid(f)}
                for f in files
            ]
            info = {"id": repository, "sha": COMMIT}
            return json.dumps(tree if listing == "tree" else info).encode() if files else None
        file = self.root / path.lstrip("/").replace(f"resolve/{COMMIT}/", "")
        if not file.is_file():
            return None
        if method == "GET":
            self.downloads.append(file.name)
        return file.read_bytes()


def _oid(file: Path) -> str:
    return hashlib.sha1(file.read_bytes()).hexdigest()


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    hub = Hub(tmp_path / "hub")
    Thread(target=hub.server.serve_forever, daemon=True).start()
    yield hub
    hub.server.shutdown()
    hub.server.server_close()


def open_from(hub: Hub, reference: str, **environment: str) -> str:
    """Open a backbone in a new process, whose client reads HF_ENDPOINT; return what it says."""
    environment = os.environ | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(hub.root.parent / "client"),
        "NO_PROXY": "*",
        **environment,
    }
    outcome = subprocess.run(
        [sys.executable, "-c", OPEN_BACKBONE, reference],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout.strip()


@pytest.mark.parametrize("reference", ["bert-base-uncased", "someone/model"])
def test_a_hub_id_needs_no_slash_and_works_offline_afterwards(
    hub: Hub, backbone: Path, reference: str
) -> None:
    shutil.copytree(backbone, hub.root / reference)
    digest = hashlib.sha256((backbone / "model.safetensors").read_bytes()).hexdigest()
    assert open_from(hub, reference).startswith(f"{reference} {digest}")
    hub.downloads.clear()
    assert open_from(hub, reference, HF_HUB_OFFLINE="1").startswith(f"{reference} {digest}")
    assert hub.downloads == []


def test_shards_are_downloaded_by_their_index(hub: Hub, backbone: Path) -> None:
    shutil.copytree(backbone, hub.root / "sharded")
    (hub.root / "sharded" / "model.safetensors").unlink()
    AutoModel.from_pretrained(backbone).save_pretrained(hub.root / "sharded", max_shard_size="4KB")
    shards = {path.name for path in (hub.root / "sharded").glob("model-*.safetensors")}
    assert len(shards) > 1
    (hub.root / "sharded" / "model-other.safetensors").write_bytes(b"not in the index")
    assert open_from(hub, "sharded").startswith("sharded ")
    assert set(hub.downloads) == shards | {
        "config.json",
        "tokenizer.json",
        "model.safetensors.index.json",
    }


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin"])
def test_a_repository_of_pickles_is_explained_and_no_pickle_downloaded(
    hub: Hub, backbone: Path, name: str
) -> None:
    shutil.copytree(backbone, hub.root / "someone" / "old")
    (hub.root / "someone" / "old" / "model.safetensors").rename(hub.root / "someone/old" / name)
    answer = open_from(hub, "someone/old")
    assert answer.startswith(f"someone/old has only {name}, a pickle, which can run code when")
    assert "AutoModel.from_pretrained('someone/old').save_pretrained(DIR)" in answer
    assert not [name for name in hub.downloads if name.endswith(".bin")]


def test_an_encoder_decoder_is_refused_before_its_weights_are_downloaded(
    hub: Hub, backbone: Path
) -> None:
    shutil.copytree(backbone, hub.root / "t5-small")
    config = {"model_type": "t5", "is_encoder_decoder": True}
    (hub.root / "t5-small" / "config.json").write_text(json.dumps(config))
    answer = open_from(hub, "t5-small")
    assert answer.startswith("t5-small is an encoder-decoder (model_type 't5'): ")
    assert "bert, roberta" in answer
    assert "model.safetensors" not in hub.downloads


def test_an_unknown_name_is_explained(hub: Hub) -> None:
    answer = open_from(hub, "misspelled")
    assert answer.startswith("There is no backbone 'misspelled': the hub has no such public model")
    assert "give --backbone a directory, a file of word vectors, a hub id" in answer


def test_an_unreachable_hub_is_explained(hub: Hub) -> None:
    answer = open_from(hub, "misspelled", HF_ENDPOINT="http://127.0.0.1:9")
    assert answer.startswith("Cannot download 'misspelled' from the hub: ")
    assert "There is no directory or file of that name" in answer
