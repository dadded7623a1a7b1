"""The systems under test: started at first use, stopped together."""

import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, cached_property, partial
from pathlib import Path
from typing import NamedTuple, TypeVar

from benchmarks import in_process, traffic
from benchmarks.load_generator import HOST
from benchmarks.peers import conversions
from benchmarks.peers.__main__ import SYSTEMS as PEERS
from benchmarks.peers.engines import SentenceTransformers
from benchmarks.processes import ForeignWorker, Server, Worker, free_port
from benchmarks.texts import sentences
from lattemix.build.backbones import open_backbone
from model_store import Precision

PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")
INFINITY = Path(os.environ.get("INFINITY_VENV", ".venv-infinity"), "bin", "infinity_emb").absolute()
PEERS_PYTHON = Path(os.environ.get("PEERS_VENV", ".venv-peers"), "bin", "python").absolute()
_INSTALLED = {
    "sentence-transformers": importlib.util.find_spec("sentence_transformers") is not None,
    "model2vec": importlib.util.find_spec("model2vec") is not None,
    "infinity": INFINITY.exists(),
    **dict.fromkeys(PEERS, PEERS_PYTHON.exists()),
}
MISSING = [name for name, installed in _INSTALLED.items() if not installed]
_EXPORTER = "sentence-transformers ONNX int8"
_OFFLINE = {"HF_HUB_OFFLINE": "1", "PYTHONPATH": str(Path(__file__).parents[1])}
_OURS, _SERVERS = ("library", "server", "bare call"), ("server", "infinity")

T = TypeVar("T")
AnyWorker = Worker | ForeignWorker


class Service(NamedTuple):
    """A server and its requests."""

    start: Callable[[], Server]  # idempotent: starts the server once
    embed: Callable[[Sequence[str]], bytes]
    similarity: Callable[[Sequence[Sequence[str]]], bytes] = traffic.similarity


def is_ours(name: str) -> bool:
    """Whether a system is ours."""
    return name.startswith(_OURS)


def category(name: str) -> tuple[bool, str]:
    """Whether a system is a server, and its precision: equal for systems to compare."""
    return name.startswith(_SERVERS), name.partition(",")[0].split()[-1]


class Systems:
    """Starts each system in a process of its own."""

    def __init__(self, model2vec: Path | None = None) -> None:
        self._model2vec = model2vec
        self._stack = ExitStack()
        # One process per distinct call.
        self.library = cache(partial(self._worker, in_process.LatteMix))
        self.bare_calls = cache(partial(self._worker, in_process.BareCalls))
        self.server = cache(self._start_server)

    def close(self) -> None:
        """Stop all systems."""
        self._stack.close()

    @cached_property
    def libraries(self) -> dict[str, AnyWorker]:
        """Our library and others', with the backbone of the default model."""
        workers: dict[str, AnyWorker] = {
            f"library {each}": self.library(each) for each in PRECISIONS
        }
        if "sentence-transformers" not in MISSING:
            torch = self._worker(SentenceTransformers, self.backbone)
            workers["sentence-transformers torch fp32"] = torch
        return workers | self._peers

    @cached_property
    def static(self) -> dict[str, AnyWorker]:
        """Libraries with a static model."""
        workers: dict[str, AnyWorker] = {"library fast": self.library("int8", "fast")}
        if self._model2vec is None:
            print("model2vec is left out: name its model's directory with --model2vec.")
        elif "model2vec" not in MISSING:
            workers["model2vec"] = self._worker(in_process.Model2Vec, self._model2vec)
        return workers

    def services(self, json: bool = False) -> dict[str, Service]:
        """Every server; ours once more with JSON responses if requested."""
        services: dict[str, Service] = {}
        for precision in PRECISIONS:
            start = partial(self.server, precision)
            services[f"server {precision}"] = Service(start, traffic.embed)
            if json:
                services[f"server {precision}, json"] = Service(start, traffic.embed_json)
        return services | self._infinities

    @cached_property
    def backbone(self) -> Path:
        """Directory of the backbone's files, fetched if needed."""
        return self._stack.enter_context(open_backbone(traffic.BACKBONE)).directory

    @cached_property
    def _converted(self) -> Path:
        """Directory of the backbone in the formats of the peers."""
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory()))

    @cached_property
    def _peers(self) -> dict[str, ForeignWorker]:
        names = [name for name in PEERS if name not in MISSING]
        return started({name: partial(self._start_peer, name) for name in names})

    def _start_peer(self, name: str) -> ForeignWorker:
        command: list[str | Path] = [
            PEERS_PYTHON,
            "-m",
            "benchmarks.peers",
            name,
            self.backbone,
            self._converted,
        ]
        worker = ForeignWorker(command, _OFFLINE)
        self._stack.callback(worker.close)
        return worker

    @cached_property
    def _infinities(self) -> dict[str, Service]:
        starts = {}
        if "infinity" not in MISSING:
            starts["infinity torch fp32"] = lambda: self._infinity(self.backbone, "torch")
            if _EXPORTER in self._peers:
                export = self._converted / conversions.EXPORT
                starts["infinity ONNX int8"] = lambda: self._infinity(export, "optimum")
        requests = traffic.infinity_embed, traffic.infinity_embed_pairs
        servers = started(starts)
        return {name: Service(lambda s=s: s, *requests) for name, s in servers.items()}  # type: ignore[misc]

    def _infinity(self, directory: Path, engine: str) -> Server:
        port = free_port()
        options = {
            "--model-id": ".",  # its engine `optimum` finds no model by an absolute path
            "--served-model-name": traffic.BACKBONE,
            "--engine": engine,
            "--device": "cpu",
            "--batch-size": "32",
            "--host": HOST,
            "--port": str(port),
        }
        arguments = [argument for option in options.items() for argument in option]
        environment = {
            "HF_HUB_CACHE": str(self._converted / "infinity"),  # for models that it optimises
            "HF_HUB_OFFLINE": "1",
            "INFINITY_ANONYMOUS_USAGE_STATS": "0",
        }
        server = Server([INFINITY, "v2", *arguments], port, "/health", environment, directory)
        return self._warm(server, traffic.infinity_embed)

    def _start_server(self, precision: Precision, name: str = "default") -> Server:
        return self._warm(serve(f"{name}:{precision}"), traffic.embed)

    def _warm(self, server: Server, request: Callable[[Sequence[str]], bytes]) -> Server:
        self._stack.callback(server.close)
        texts = sentences("warm-up", in_process.WARM_UP_SENTENCES)
        server.closed_loop([request(chunk) for chunk in traffic.chunks(texts, 8)], 8).check()
        return server

    def _worker(self, factory: Callable[..., object], *arguments: object) -> Worker:
        worker = Worker(factory, *arguments)
        self._stack.callback(worker.close)
        return worker


def started(starts: dict[str, Callable[[], T]]) -> dict[str, T]:
    """Start systems; leave out those that fail, with a message."""
    systems: dict[str, T] = {}
    for name, start in starts.items():
        try:
            systems[name] = start()
        except RuntimeError as error:
            print(f"{name} is left out. {error}")
    return systems


def serve(model: str, store: Path | None = None) -> Server:
    """Start `lattemix serve` with a model of a store, by default the one of the settings."""
    port = free_port()
    program = Path(sys.executable).parent / "lattemix"
    options = ["--port", str(port), "--model", model]
    options += ["--store", str(store)] if store else []
    return Server([program, "serve", *options], port, "/ready")
