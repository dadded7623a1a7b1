"""A full disk while a model is published."""

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lattemix.encoder import Encoder
from model_store import Artifact, Store, StoreError

# The system rejects writes beyond the limit with an error and a signal, which is ignored.
PUBLISHER = """
import resource, shutil, signal, sys
from pathlib import Path
from model_store import Store, StoreError

source, root, limit = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    with Store(root).publish("tiny", "fp32") as staging:
        for path in sorted(source.iterdir()):
            (staging / path.name).write_bytes(path.read_bytes())
except StoreError as error:
    sys.exit(f"StoreError: {error}")
"""


def files(root: Path) -> dict[str, bytes]:
    paths = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in paths}


def check_model(store: Store) -> None:
    encoding = Encoder(store.open("tiny"), provider="cpu").encode(["a dog"])
    assert encoding.mixtures.sum() > 0


@pytest.mark.parametrize("limit", [0, 1_000, 20_000], ids=lambda limit: f"{limit} bytes")
def test_file_size_limit_keeps_the_old_model(
    private_store: Store, artifact: Artifact, limit: int
) -> None:
    before = files(private_store.root)
    assert limit < max(map(len, before.values()))
    command = [sys.executable, "-c", PUBLISHER, str(artifact.path), str(private_store.root)]
    process = subprocess.run([*command, str(limit)], capture_output=True, text=True, timeout=60)
    assert process.returncode == 1
    message = f"StoreError: Cannot write to the model store {private_store.root}: File too large."
    assert process.stderr.startswith(message)
    assert "LATTEMIX_STORE" in process.stderr
    assert files(private_store.root) == before
    check_model(private_store)


def publish(store: Store, artifact: Artifact) -> None:
    with store.publish("tiny", "fp32") as staging:
        for path in artifact.path.iterdir():
            shutil.copyfile(path, staging / path.name)


@pytest.mark.parametrize("step", ["os.fsync", "shutil.copyfile"])
@pytest.mark.parametrize("count", [0, 2])
def test_full_disk_at_any_step_keeps_the_old_model(
    private_store: Store,
    artifact: Artifact,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    count: int,
) -> None:
    """Some disks report that they are full only when data is flushed."""
    before, successes = files(private_store.root), iter(range(count))

    def fail(*arguments: object) -> None:
        if next(successes, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(step, fail)
    with pytest.raises(StoreError, match="No space left on device"):
        publish(private_store, artifact)
    monkeypatch.undo()
    assert files(private_store.root) == before
    check_model(private_store)
    publish(private_store, artifact)  # the disk has space again
    check_model(private_store)
