"""A tiny model to serve, its store, and settings. Nothing here needs torch."""

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from app.settings import Settings
from lattemix.build.assemble import assemble
from lattemix.build.backbones import Checkpoint
from lattemix.build.head import Head
from lattemix.encoder import Encoder
from lattemix.labelled.calibrate import publish
from model_store import Artifact, Store
from model_store.calibration import Calibration
from tests.app.conftest import serving
from tests.tiny import SENTENCES, write_backbone, write_head, write_static

# No deadline: the machine may be busy. `pytest --hypothesis-profile=thorough tests/reliability`
# tries a hundred times as many examples.
_OPTIONS = {"deadline": None, "suppress_health_check": [hypothesis.HealthCheck.too_slow]}
hypothesis.settings.register_profile("default", max_examples=50, **_OPTIONS)
hypothesis.settings.register_profile("thorough", max_examples=5000, **_OPTIONS)
hypothesis.settings.load_profile("default")


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own LATTEMIX_* settings must not reach the tests."""
    for name in [name for name in os.environ if name.startswith("LATTEMIX_")]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def backbone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a random BERT with 2 layers, width 16 and 32 positions."""
    directory = tmp_path_factory.mktemp("tiny-bert")
    write_backbone(directory)
    return directory


@pytest.fixture(scope="session")
def checkpoint(backbone: Path) -> Checkpoint:
    return Checkpoint.read(backbone)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "sentences.txt"
    path.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def head_directory(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("heads") / "tiny"
    write_head(checkpoint, directory)
    return directory


@pytest.fixture(scope="session")
def head(head_directory: Path) -> Head:
    return Head.load(head_directory)


@pytest.fixture(scope="session")
def store(head_directory: Path, backbone: Path, tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Holds `tiny:fp32`; tests that change a store make their own with `private_store`."""
    store = Store(tmp_path_factory.mktemp("store"))
    assemble(head_directory, store, "tiny", str(backbone))
    return store


@pytest.fixture(scope="session")
def static_store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """Holds `static:fp32`, a static model."""
    directory = tmp_path_factory.mktemp("static")
    write_static(directory / "words", directory / "head")
    store = Store(directory / "store")
    assemble(directory / "head", store, "static", str(directory / "words"))
    return store


@pytest.fixture(scope="session")
def static_encoder(static_store: Store) -> Encoder:
    return Encoder(static_store.open("static"), provider="cpu")


@pytest.fixture
def private_store(store: Store, tmp_path: Path) -> Store:
    """A copy of the store that a test may damage."""
    shutil.copytree(store.root, tmp_path / "store")
    return Store(tmp_path / "store")


@pytest.fixture(scope="session")
def calibration(store: Store) -> Calibration:
    """Maps the recommended metric of `tiny` to a probability."""
    manifest = store.open("tiny").manifest
    return Calibration(
        head=manifest.head.sha256,
        metric=manifest.recommended_metric,
        kind="probability",
        scale=(0, 1),
        method="isotonic",
        scores=(-1.0, 0.5, 0.9, 1.0),
        values=(0.0, 0.2, 0.8, 0.9),
        about="ten pairs written for the tests",
        pairs=10,
        fitted_on="tiny:fp32",
    )


@pytest.fixture(scope="session")
def calibrated_store(
    store: Store, calibration: Calibration, tmp_path_factory: pytest.TempPathFactory
) -> Store:
    """Holds `tiny:fp32` with a calibration."""
    root = tmp_path_factory.mktemp("calibrated") / "store"
    shutil.copytree(store.root, root)
    calibrated = Store(root)
    publish(calibrated, calibrated.open("tiny"), "tiny", calibration)
    return calibrated


@pytest.fixture(scope="session")
def artifact(store: Store) -> Artifact:
    return store.open("tiny")


@pytest.fixture(scope="session")
def encoder(artifact: Artifact) -> Encoder:
    return Encoder(artifact, provider="cpu")


@pytest.fixture
def settings(store: Store) -> Settings:
    return Settings(
        store=store.root, model="tiny", max_inputs=8, max_characters=500, max_body_bytes=4096
    )


@pytest.fixture(scope="session")
def server(store: Store) -> Iterator[str]:
    """URL of a running `lattemix serve`."""
    with serving(store) as (_, url):
        yield url


@pytest.fixture
def lattemix_environment(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """Settings of the tiny model for commands that run in this process."""
    monkeypatch.setattr(sys, "argv", [])
    # `serve` adds a handler for the standard error of its test.
    monkeypatch.setattr(logging.getLogger("lattemix"), "handlers", [])
    monkeypatch.setenv("LATTEMIX_STORE", str(store.root))
    monkeypatch.setenv("LATTEMIX_MODEL", "tiny")


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """A Ray cluster of this process, with two cores."""
    import ray

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    small = 100_000_000  # bytes; the default is a third of the machine's memory
    ray.init(
        "local",  # not the cluster of another test process
        num_cpus=2,
        object_store_memory=small,
        include_dashboard=False,
        configure_logging=False,
    )
    yield
    ray.shutdown()


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Durations that the client would have slept."""
    naps: list[float] = []

    async def sleep(seconds: float) -> None:
        naps.append(seconds)

    monkeypatch.setattr("lattemix.client.connection.sleep", sleep)
    return naps
