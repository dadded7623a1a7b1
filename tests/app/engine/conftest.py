"""An engine whose model can be paused, recorded and made to fail."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from app.engine import Engine, Host
from app.observe import ModelMetrics, Trace
from app.settings import Settings
from lattemix.encoder import Encoder
from lattemix.tokenization import Tokens
from model_store import Artifact

Batch = list[list[int]]


class Gated(Encoder):
    """A real encoder whose runs wait for `gate`, are recorded in `batches`, and fail on request."""

    def __init__(self, artifact: Artifact, **options: int) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.batches: list[Batch] = []
        self.began = threading.Event()
        self.fails: Callable[[Batch], bool] = lambda batch: False
        self.artifact = artifact
        super().__init__(artifact, provider="cpu", **options)
        self.overhead = 4.0  # instead of the measured one
        self.parallel = 1  # batches run one after the other, so that tests can inspect the queue
        self.batches.clear()  # from the warm-up

    def run(self, batch: Sequence[Tokens], alone: bool = False) -> NDArray[np.float32]:
        ids = [tokens.ids for tokens in batch]
        self.batches.append(ids)
        self.began.set()
        assert self.gate.wait(10)
        if self.fails(ids):
            raise RuntimeError("out of memory")
        return super().run(batch, alone)


@pytest.fixture
def gated(artifact: Artifact) -> Gated:
    return Gated(artifact, token_budget=64)


@pytest.fixture
def engine(gated: Gated, settings: Settings) -> Iterator[Engine]:
    engine = start_engine(gated, settings)
    yield engine
    gated.gate.set()
    engine.close()


def start_engine(
    encoder: Encoder, settings: Settings, metrics: ModelMetrics | None = None
) -> Engine:
    cache_bytes = settings.cache_bytes if encoder.static is None else 0
    return Engine(encoder, Host(settings), cache_bytes, metrics)


def trace() -> Trace:
    return Trace("test")


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


async def held(
    engine: Engine, gated: Gated, text: str = "nobody likes cold coffee"
) -> asyncio.Task:
    """Start a request whose batch runs until the gate opens."""
    gated.gate.clear()
    gated.began.clear()
    task = asyncio.create_task(engine.encode([text], trace()))
    await until(gated.began.is_set)
    return task


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scenario())  # type: ignore[arg-type]
