"""Downloads by the real client from a small HTTP server that acts as the hub."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import huggingface_hub
import pytest

from lattemix.build.backbones import BackboneError, Checkpoint, open_backbone, packages
from lattemix.build.backbones.packages import PinnedPackage

ROOT = Path(__file__).parents[4]
COMMIT = "0" * 40


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


@pytest.fixture
def local_hub(hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    """The hub that this process downloads from."""
    monkeypatch.setenv("NO_PROXY", "*")
    huggingface_hub.close_session()  # its connections may use the proxy of the environment
    download, api = huggingface_hub.snapshot_download, huggingface_hub.HfApi
    options = {"endpoint": hub.url, "cache_dir": tmp_path / "client"}
    monkeypatch.setattr(huggingface_hub, "snapshot_download", partial(download, **options))
    monkeypatch.setattr(huggingface_hub, "HfApi", partial(api, endpoint=hub.url))
    return hub


OPEN_BACKBONE = """
import sys
from lattemix.build.backbones import open_backbone
with open_backbone(sys.argv[1]) as checkpoint:
    print(checkpoint.name, checkpoint.sha256)
"""


def test_downloads_once_and_works_offline_afterwards(
    hub: Hub, backbone: Path, tmp_path: Path
) -> None:
    """In a new process, because the client reads its environment when imported."""
    shutil.copytree(backbone, hub.root / "bert-base-uncased")
    digest = hashlib.sha256((backbone / "model.safetensors").read_bytes()).hexdigest()
    environment = os.environ | {
        "HF_ENDPOINT": hub.url,
        "HF_HOME": str(tmp_path / "client"),
        "NO_PROXY": "*",
    }
    for offline in ("0", "1"):
        hub.downloads.clear()
        output = subprocess.check_output(
            [sys.executable, "-c", OPEN_BACKBONE, "bert-base-uncased"],
            cwd=ROOT,
            env=environment | {"HF_HUB_OFFLINE": offline},
            text=True,
        )
        assert output.split() == ["bert-base-uncased", digest]
        assert bool(hub.downloads) == (offline == "0")


def test_downloads_the_shards_in_the_index(local_hub: Hub, backbone: Path) -> None:
    repository = Path(shutil.copytree(backbone, local_hub.root / "someone" / "sharded"))
    (repository / "model.safetensors").rename(repository / "model-1.safetensors")
    (repository / "model-other.safetensors").write_bytes(b"not in the index")
    index = {
        "weight_map": dict.fromkeys(Checkpoint.read(backbone).tensors(), "model-1.safetensors")
    }
    (repository / "model.safetensors.index.json").write_text(json.dumps(index))
    with open_backbone("someone/sharded") as checkpoint:
        assert checkpoint.name == "someone/sharded"
    assert set(local_hub.downloads) == {
        "model-1.safetensors",
        "config.json",
        "tokenizer.json",
        "model.safetensors.index.json",
    }


def assert_rejected(reference: str, *messages: str) -> None:
    with pytest.raises(BackboneError) as raised, open_backbone(reference):
        pytest.fail("opened")
    for message in messages:
        assert message in str(raised.value)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin"])
def test_rejects_pickles_without_downloading_them(
    local_hub: Hub, backbone: Path, name: str
) -> None:
    repository = Path(shutil.copytree(backbone, local_hub.root / "someone" / "old"))
    (repository / "model.safetensors").rename(repository / name)
    assert_rejected(
        "someone/old",
        f"someone/old has only {name}, a pickle, which can run code when",
        "AutoModel.from_pretrained('someone/old').save_pretrained(DIR)",
    )
    assert not [name for name in local_hub.downloads if name.endswith(".bin")]


def test_rejects_encoder_decoder_before_downloading_its_weights(
    local_hub: Hub, backbone: Path
) -> None:
    repository = Path(shutil.copytree(backbone, local_hub.root / "t5-small"))
    config = {"model_type": "t5", "is_encoder_decoder": True}
    (repository / "config.json").write_text(json.dumps(config))
    assert_rejected("t5-small", "t5-small is an encoder-decoder (model_type 't5'): ")
    assert "model.safetensors" not in local_hub.downloads


def test_unknown_repository_is_explained(local_hub: Hub) -> None:
    assert_rejected(
        "misspelled",
        "There is no backbone 'misspelled': the hub has no such public model",
        "--backbone takes a directory, a file of word vectors, a hub id",
    )


def test_downloads_a_pinned_commit_after_the_wheel_failed(
    local_hub: Hub, backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(backbone, local_hub.root / "someone" / "model")
    files = {
        name: hashlib.sha256((backbone / name).read_bytes()).hexdigest()
        for name in ("config.json", "model.safetensors", "tokenizer.json")
    }
    package = PinnedPackage(
        "no-such-package==1", "0" * 64, "data", files, None, "someone/model", COMMIT
    )
    monkeypatch.setitem(packages.PINNED, "pinned", package)
    monkeypatch.setenv("LATTEMIX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with open_backbone("pinned") as checkpoint:
        assert (checkpoint.name, checkpoint.sha256) == ("pinned", files["model.safetensors"])
        assert checkpoint.directory.is_relative_to(tmp_path / "cache")
    assert sorted(local_hub.downloads) == sorted(files)


def test_unreachable_hub_is_explained(local_hub: Hub) -> None:
    local_hub.server.shutdown()
    local_hub.server.server_close()
    assert_rejected(
        "misspelled",
        "Cannot download 'misspelled' from the hub: ",
        "There is no directory or file of that name",
    )
