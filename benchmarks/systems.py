"""The systems under test: started at first use, stopped together."""

import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import in_process, traffic
from benchmarks.load_generator import HOST
from benchmarks.processes import Server, Worker, free_port
from benchmarks.texts import sentences
from lattemix.build.backbones import open_backbone
from model_store import Precision

PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")
INFINITY = Path(os.environ.get("INFINITY_VENV", ".venv-infinity"), "bin", "infinity_emb").absolute()
_INSTALLED = {
    "sentence-transformers": importlib.util.find_spec("sentence_transformers") is not None,
    "infinity": INFINITY.exists(),
}
MISSING = [name for name, installed in _INSTALLED.items() if not installed]


class Service(NamedTuple):
    """A server and its requests."""

    start: Callable[[], Server]  # idempotent: starts the server once
    embed: Callable[[Sequence[str]], bytes]
    similarity: Callable[[Sequence[Sequence[str]]], bytes] = traffic.similarity


class Systems:
    """Starts each system in a process of its own."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        # One process per distinct call.
        self.library = cache(partial(self._worker, in_process.LatteMix))
        self.onnx_runtime = cache(partial(self._worker, in_process.OnnxRuntime))
        self.server = cache(self._start_server)

    def close(self) -> None:
        """Stop all systems."""
        self._stack.close()

    @cached_property
    def sentence_transformers(self) -> Worker:
        """The library sentence-transformers."""
        return self._worker(in_process.SentenceTransformers, self.backbone)

    def services(self, json: bool = False) -> dict[str, Service]:
        """Every server; ours once more with JSON responses if requested."""
        services: dict[str, Service] = {}
        for precision in PRECISIONS:
            start = partial(self.server, precision)
            services[f"server {precision}"] = Service(start, traffic.embed)
            if json:
                services[f"server {precision}, json"] = Service(start, traffic.embed_json)
        if "infinity" not in MISSING:
            requests = traffic.infinity_embed, traffic.infinity_embed_pairs
            services["infinity"] = Service(lambda: self._infinity, *requests)
        return services

    @cached_property
    def backbone(self) -> Path:
        """Directory of the backbone's files, fetched if needed."""
        return self._stack.enter_context(open_backbone(traffic.BACKBONE)).directory

    @cached_property
    def _infinity(self) -> Server:
        port = free_port()
        options = {
            "--model-id": str(self.backbone),
            "--served-model-name": traffic.BACKBONE,
            "--engine": "torch",
            "--device": "cpu",
            "--batch-size": "32",
            "--host": HOST,
            "--port": str(port),
        }
        arguments = [argument for option in options.items() for argument in option]
        environment = {"INFINITY_ANONYMOUS_USAGE_STATS": "0", "HF_HUB_OFFLINE": "1"}
        server = Server([INFINITY, "v2", *arguments], port, "/health", environment)
        return self._warm(server, traffic.infinity_embed)

    def _start_server(self, precision: Precision) -> Server:
        return self._warm(serve(f"default:{precision}"), traffic.embed)

    def _warm(self, server: Server, request: Callable[[Sequence[str]], bytes]) -> Server:
        self._stack.callback(server.close)
        texts = sentences("warm-up", in_process.WARM_UP_SENTENCES)
        server.closed_loop([request(chunk) for chunk in traffic.chunks(texts, 8)], 8).check()
        return server

    def _worker(self, factory: Callable[..., Any], *arguments: object) -> Worker:
        worker = Worker(factory, *arguments)
        self._stack.callback(worker.close)
        return worker


def serve(model: str, store: Path | None = None) -> Server:
    """Start `lattemix serve` with a model of a store, by default the one of the settings."""
    port = free_port()
    program = Path(sys.executable).parent / "lattemix"
    options = ["--port", str(port), "--model", model]
    options += ["--store", str(store)] if store else []
    return Server([program, "serve", *options], port, "/ready")
