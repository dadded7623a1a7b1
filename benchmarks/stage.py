"""Everyone who may take a turn, started when first asked for and stopped at the end."""

import os
import resource
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from benchmarks import contestants, load
from benchmarks.load import Answers, post
from benchmarks.processes import Server, Worker, free_port
from benchmarks.texts import BACKBONE, sentences
from lattemix.build.backbones import Checkpoint, open_backbone
from lattemix.build.head import Head
from model_store import Precision
from model_store.store import HEADS

ROOT = Path(__file__).parent.parent
INFINITY = Path(os.environ.get("INFINITY_VENV", ROOT / ".venv-infinity")) / "bin" / "infinity_emb"
NPY = "application/x-npy"
PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")

T = TypeVar("T")


@dataclass(frozen=True)
class Plan:
    """How much is done."""

    rounds: int = 9
    seconds: float = 2.0  # that a turn of the slower contestants takes, about
    quick: bool = False
    backbone: str = BACKBONE
    head: Path = HEADS / "default"
    requests: int = 100_000  # of the memory part
    tell: Callable[[str], None] = field(default=lambda line: None, compare=False)

    def fewer(self) -> int:
        """Rounds of what takes long, or is less sought after."""
        return 1 if self.quick else max(1, self.rounds // 3)

    def sentences(self, tokens: float = 14.0) -> int:
        """How many of so many tokens each, in whole requests of 32, make a turn."""
        return max(16, round(self.seconds * 7168 / tokens / 32)) * 32


class Service(NamedTuple):
    """A server, and how it is asked for what it makes of texts."""

    start: Callable[[], Server]
    ask: Callable[[Sequence[str]], bytes]


class Stage:
    """The contestants, by name."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._there: dict[str, Any] = {}

    def __enter__(self) -> "Stage":
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)  # a connection is a file
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def engine(self, precision: Precision) -> Worker:
        """Our engine without a server."""
        model = contestants.artifact(precision)
        return self._worker(f"engine {precision}", contestants.OurEngine, model)

    def bare(self, precision: Precision) -> Worker:
        """Bare calls of ONNX Runtime."""
        return self._worker(f"bare {precision}", contestants.BareCalls, precision)

    def sentence_transformers(self) -> Worker:
        """The library sentence-transformers."""
        return self._worker("st", contestants.SentenceTransformers, self.backbone())

    def torch_export(self, backbone: str = BACKBONE, head: Path = HEADS / "default") -> Worker:
        """The export that torch makes itself of a backbone and a head."""

        def start() -> Worker:
            model = self.folder / f"plain-{len(self._there)}.onnx"
            exporter = Worker(contestants.exporter)
            exporter(str(self.backbone(backbone)), head, model)
            exporter.close()
            return self.graph(backbone, head, model)

        return self._once(f"export {backbone} {head}", start)

    def graph(self, backbone: str, head: Path, model: Path) -> Worker:
        """A graph of a backbone and a head."""
        tokenizer = Checkpoint.read(self.backbone(backbone)).tokenizer
        most = Head.load(head).spec.max_tokens
        return self._worker(f"graph {model}", contestants.Graph, model, tokenizer, most)

    def products(self, shapes: Sequence[tuple[int, int]] = ()) -> Worker:
        """The products alone, of the default model unless it says otherwise."""
        shapes = shapes or self.shapes
        return self._worker(f"products {shapes}", contestants.Products, shapes)

    def server(self, precision: Precision) -> Server:
        """`lattemix serve`, as it comes."""
        return self._once(f"server {precision}", lambda: self._warm(serve(precision), "/embed"))

    def infinity(self) -> Server:
        """The server of infinity, with its own defaults."""
        return self._once("infinity", self._start_infinity)

    def services(self, json: bool = False) -> dict[str, Service]:
        """Every server, ours also asked for JSON if that is wanted."""
        found = {
            f"server {precision}": Service(partial(self.server, precision), embed)
            for precision in PRECISIONS
        }
        if json:
            as_json = partial(embed, accept="application/json")
            found |= {f"{name}, json": Service(our.start, as_json) for name, our in found.items()}
        if INFINITY.exists():
            found["infinity"] = Service(self.infinity, ask_infinity)
        return found

    def closed(self, server: Server, requests: Sequence[bytes], clients: int) -> Answers:
        """Answers to requests that clients send without a pause."""
        answers: Answers = self._generator("closed", server.port, requests, clients)
        server.check()
        return answers

    def arriving(self, server: Server, requests: Sequence[bytes], due: Any) -> Answers:
        """Answers to requests that come when they are due."""
        answers: Answers = self._generator("arriving", server.port, requests, due)
        server.check()
        return answers

    @cached_property
    def _generator(self) -> Worker:
        return self._worker("generator", _generator)

    @cached_property
    def folder(self) -> Path:
        """For what is made on the way, until the end."""
        return Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="lattemix-")))

    def backbone(self, reference: str = BACKBONE) -> Path:
        """Where a backbone's files are; it is fetched once."""
        return self._once(
            f"backbone {reference}",
            lambda: self._stack.enter_context(open_backbone(reference)).directory,
        )

    @cached_property
    def shapes(self) -> list[tuple[int, int]]:
        """The matrices [in, out] that every token is multiplied by."""
        return shapes(Head.load(HEADS / "default"), Checkpoint.read(self.backbone()).config)

    def flops(self, tokens: int) -> float:
        """In the products of so many tokens."""
        return 2.0 * tokens * sum(rows * columns for rows, columns in self.shapes)

    def _start_infinity(self) -> Server:
        port = free_port()
        options: dict[str, str] = {
            "--model-id": str(self.backbone()),
            "--served-model-name": BACKBONE,
            "--engine": "torch",
            "--device": "cpu",
            "--batch-size": "32",
            "--host": load.HOST,
            "--port": str(port),
        }
        words = [word for name, value in options.items() for word in (name, value)]
        command: list[str | Path] = [INFINITY, "v2", *words]
        quiet = {
            "DO_NOT_TRACK": "1",
            "INFINITY_ANONYMOUS_USAGE_STATS": "0",
            "HF_HUB_OFFLINE": "1",
        }
        return self._warm(Server(command, port, "/health", quiet), "/embeddings")

    def _warm(self, server: Server, path: str) -> Server:
        """A server that has been asked something, and is stopped at the end."""
        self._stack.callback(server.close)
        texts = sentences(0, contestants.WARM_UP)
        ask = embed if path == "/embed" else ask_infinity
        self.closed(server, [ask(texts[i : i + 8]) for i in range(0, len(texts), 8)], 8).check()
        return server

    def _worker(self, name: str, make: Callable[..., Any], *arguments: object) -> Worker:
        def start() -> Worker:
            worker = Worker(make, *arguments)
            self._stack.callback(worker.close)
            return worker

        return self._once(name, start)

    def _once(self, name: str, start: Callable[[], T]) -> T:
        if name not in self._there:
            self._there[name] = start()
        there: T = self._there[name]
        return there


def _generator() -> Callable[..., Answers]:
    """The load generator, for a process of its own."""
    kinds: dict[str, Callable[..., Answers]] = {"closed": load.closed, "arriving": load.arriving}
    return lambda kind, *arguments: kinds[kind](*arguments)


def serve(precision: Precision) -> Server:
    """`lattemix serve` of the default model in this precision."""
    port = free_port()
    lattemix = Path(sys.executable).parent / "lattemix"
    command = (lattemix, "serve", "--port", str(port), "--model", f"default:{precision}")
    return Server(command, port, "/ready", {})


def embed(texts: Sequence[str], accept: str = NPY) -> bytes:
    """A request for mixtures, in bytes unless it says otherwise."""
    return post("/embed", {"inputs": list(texts)}, accept)


def ask_infinity(texts: Sequence[str]) -> bytes:
    """A request for embeddings, as infinity takes it; in base64, which it writes fastest."""
    body = {"model": BACKBONE, "input": list(texts), "encoding_format": "base64"}
    return post("/embeddings", body)


def ask_similarity(pairs: Sequence[Sequence[str]]) -> bytes:
    """A request for the similarities of pairs."""
    return post("/similarity", {"pairs": list(pairs), "metrics": ["cosine", "js"]})


def in_parts(texts: Sequence[str], size: int) -> list[Sequence[str]]:
    """The texts, so many at a time."""
    return [texts[start : start + size] for start in range(0, len(texts), size)]


def shapes(head: Head, config: Any) -> list[tuple[int, int]]:
    """The matrices [in, out] that every token is multiplied by."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    layer = [(width, 3 * width), (width, width), (width, inner), (inner, width)]
    return layer * head.spec.backbone.layer + [(width, head.spec.latent_dims * head.spec.classes)]
