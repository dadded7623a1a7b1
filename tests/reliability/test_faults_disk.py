"""A disk that is full while a model is published."""

import errno
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lattemix.encoder import Encoder
from model_store import Artifact, Store, StoreError

# The system itself refuses to let a file grow beyond the limit; it signals that, too.
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
    found = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in found}


def works(store: Store) -> None:
    found = Encoder(store.open("tiny"), provider="cpu").encode(["a dog"])
    assert found.mixtures.sum() > 0


@pytest.mark.parametrize("limit", [0, 1_000, 20_000], ids=lambda limit: f"{limit} bytes")
def test_a_file_that_cannot_grow_leaves_the_old_model(
    private_store: Store, artifact: Artifact, limit: int
) -> None:
    before = files(private_store.root)
    assert limit < max(map(len, before.values()))
    command = [sys.executable, "-c", PUBLISHER, str(artifact.path), str(private_store.root)]
    ended = subprocess.run([*command, str(limit)], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    said = f"StoreError: Cannot write to the model store {private_store.root}: File too large."
    assert ended.stderr.startswith(said)
    assert "LATTEMIX_STORE" in ended.stderr
    assert files(private_store.root) == before
    works(private_store)


def publish(store: Store, artifact: Artifact) -> None:
    with store.publish("tiny", "fp32") as staging:
        for path in artifact.path.iterdir():
            shutil.copyfile(path, staging / path.name)


@pytest.mark.parametrize("step", ["os.fsync", "shutil.copyfile"])
@pytest.mark.parametrize("count", [0, 2])
def test_a_full_disk_at_any_step_leaves_the_old_model(
    private_store: Store,
    artifact: Artifact,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    count: int,
) -> None:
    """Some disks say that they are full only when what was written is flushed."""
    before, left = files(private_store.root), iter(range(count))

    def full(*arguments: object) -> None:
        if next(left, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(step, full)
    with pytest.raises(StoreError, match="No space left on device"):
        publish(private_store, artifact)
    monkeypatch.undo()
    assert files(private_store.root) == before
    works(private_store)
    publish(private_store, artifact)  # there is room again
    works(private_store)
