import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from model_store import ArtifactError, Store, StoreError
from model_store.store import default_root


def names(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def publish(store: Store, content: str) -> None:
    with store.publish("a", "fp32") as staging:
        (staging / "file").write_text(content)


def fail_to_publish(store: Store, error: Exception) -> None:
    with store.publish("a", "fp32") as staging:
        (staging / "file").write_text("half")
        raise error


def test_opens_the_only_precision_of_a_name(store: Store) -> None:
    assert store.open("tiny").manifest.reference == "tiny:fp32"
    assert store.open("tiny:fp32") == store.open("tiny")


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (
            "other",
            r"no model 'other' in .* \(it holds tiny\): assemble default and fast with `lattemix b",
        ),
        ("tiny:int8", "'tiny' has no precision 'int8' in .*, only fp32"),
        ("tiny:fp8", "Unknown precision 'fp8' in 'tiny:fp8': use fp32, fp16, int8"),
        ("../tiny", "is not a model name"),
        ("", "is not a model name"),
        ("tiny\n", "is not a model name"),
    ],
)
def test_rejects_unknown_reference(store: Store, reference: str, message: str) -> None:
    with pytest.raises(StoreError, match=message):
        store.open(reference)


def test_missing_store_is_empty(tmp_path: Path) -> None:
    store = Store(tmp_path / "none")
    assert store.entries() == []
    with pytest.raises(StoreError, match="it holds nothing yet"):
        store.open("default")


def test_publishes_all_files_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.publish("a", "fp32") as staging:
        (staging / "file").write_text("whole")
        assert not (tmp_path / "a").exists()
    assert names(tmp_path) == ["a/fp32/file"]
    assert (tmp_path / "a" / "fp32").stat().st_mode & 0o777 == 0o755


def test_publishing_replaces_the_whole_artifact(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with store.publish("a", "fp32") as staging:
        (staging / "old").write_text("old")
    publish(store, "new")
    assert names(tmp_path) == ["a/fp32/file"]
    assert (tmp_path / "a/fp32/file").read_text() == "new"


@pytest.mark.parametrize("exchange", [True, False], ids=["renameat2", "two renames"])
def test_model_can_be_read_while_it_is_replaced(
    private_store: Store, monkeypatch: pytest.MonkeyPatch, exchange: bool
) -> None:
    if not exchange:
        monkeypatch.setattr("model_store.store.ctypes.CDLL", lambda *_, **__: object())
    source = private_store.open("tiny").path
    files = {path.name: path.read_bytes() for path in source.iterdir()}
    stop, failures = threading.Event(), []

    def read() -> None:
        while not stop.is_set():
            try:
                private_store.open("tiny")
            except Exception as error:
                failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        with private_store.publish("tiny", "fp32") as staging:
            for name, content in files.items():
                (staging / name).write_bytes(content)
    stop.set()
    reader.join()
    assert private_store.open("tiny").path == source
    assert names(private_store.root) == sorted(f"tiny/fp32/{name}" for name in files)
    if exchange:
        assert failures == []


def test_failed_rename_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    publish(store, "old")
    monkeypatch.setattr("model_store.store.ctypes.CDLL", lambda *_, **__: object())
    rename = Path.rename

    def fail(self: Path, target: Path) -> Path:
        if self.name.startswith(".staging-") and not self.name.endswith("-old"):
            raise OSError(5, "Input/output error", str(target))
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(StoreError, match="Input/output error"):
        publish(store, "new")
    assert (tmp_path / "a/fp32/file").read_text() == "old"


def test_error_of_another_file_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        fail_to_publish(Store(tmp_path / "store"), FileNotFoundError(2, "gone", "/source/file"))


def test_failed_publish_keeps_the_old_artifact(tmp_path: Path) -> None:
    store = Store(tmp_path)
    publish(store, "old")
    with pytest.raises(RuntimeError, match="power cut"):
        fail_to_publish(store, RuntimeError("power cut"))
    assert names(tmp_path) == ["a/fp32/file"]
    assert (tmp_path / "a/fp32/file").read_text() == "old"


def test_full_disk_leaves_no_files(tmp_path: Path) -> None:
    store = Store(tmp_path)
    message = f"Cannot write to the model store {tmp_path}: No space left on device.*LATTEMIX_STORE"
    with pytest.raises(StoreError, match=message):
        fail_to_publish(store, OSError(28, "No space left on device"))
    assert names(tmp_path) == []


def test_rejects_file_as_store(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file")
    with (
        pytest.raises(StoreError, match=r"Cannot write to the model store .*--store"),
        store.publish("a", "fp32"),
    ):
        pytest.fail("the block must not run")


@contextmanager
def unprivileged() -> Iterator[None]:
    """Run as nobody, because root may write anywhere."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


def test_rejects_read_only_store() -> None:
    with tempfile.TemporaryDirectory() as folder:  # nobody cannot enter the parents of tmp_path
        os.chmod(folder, 0o555)
        message = f"Cannot write to the model store {folder}: Permission denied"
        with unprivileged(), pytest.raises(StoreError, match=message):
            publish(Store(Path(folder)), "x")
        os.chmod(folder, 0o755)


def test_removes_stale_staging_directories(tmp_path: Path) -> None:
    fresh, stale = tmp_path / ".staging-fresh", tmp_path / ".staging-stale"
    for staging in (fresh, stale):
        staging.mkdir()
        (staging / "half").write_text("half")
    now = time.time()
    os.utime(fresh, (now - 12 * 3600, now - 12 * 3600))
    os.utime(stale, (now - 48 * 3600, now - 48 * 3600))
    store = Store(tmp_path)
    assert store.entries() == []
    publish(store, "x")
    assert fresh.exists()
    assert not stale.exists()


def test_rejects_name_outside_the_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    with pytest.raises(StoreError, match="is not a model name"), store.publish("../out", "fp32"):
        pytest.fail("the block must not run")
    assert not (tmp_path / "out").exists()


def test_entries_report_damaged_artifacts(private_store: Store) -> None:
    damaged = private_store.root / "damaged"
    shutil.copytree(private_store.root / "tiny", damaged)
    good, bad = sorted(private_store.entries(), key=lambda entry: entry.problem is not None)
    assert (good.reference, good.problem) == ("tiny:fp32", None)
    assert bad.reference == "damaged:fp32"
    assert bad.artifact is None
    assert "was moved: its manifest says tiny:fp32" in str(bad.problem)
    with pytest.raises(ArtifactError, match="was moved"):
        private_store.open("damaged")


def test_default_root_is_in_the_checkout_or_in_the_users_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert default_root().parts[-2:] == ("model_store", "artifacts")
    installed = tmp_path / "site-packages" / "model_store" / "store.py"
    monkeypatch.setattr("model_store.store.__file__", str(installed))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert default_root() == tmp_path / "data" / "lattemix" / "models"
