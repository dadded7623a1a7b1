"""What takes turns with the servers: each is made, and called, in a process of its own.

A call is given texts and returns seconds: of all of them, or of each, where it says so. Heavy
packages are imported where they are used, so that no other contestant carries them.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.texts import sentences
from lattemix.encoder import Encoder, batches, usable_cores
from lattemix.settings import ModelSettings, load_settings
from lattemix.speed import measure_speed
from lattemix.tokenization import Tokenizer, Tokens
from model_store import Artifact, Precision, Store

Feeds = dict[str, NDArray[Any]]

WARM_UP = 64  # sentences
GRAPH_TOKENS = 1024  # in a batch that has all cores


def artifact(precision: Precision) -> Artifact:
    """The default model."""
    return Store(load_settings(ModelSettings).store).open(f"default:{precision}")


def timed(job: Callable[[], object]) -> float:
    """Seconds that it takes."""
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


class OurEngine:
    """`Encoder.encode`, as `lattemix embed` calls it."""

    def __init__(self, model: Artifact, threads: int = 0, token_budget: int = 0) -> None:
        self.encoder = Encoder(model, threads=threads, token_budget=token_budget)
        self.encoder.encode(sentences(0, WARM_UP))

    def token_budget(self) -> int:
        """Tokens in a batch."""
        return self.encoder.token_budget

    def speeds(self, seconds: float) -> list[tuple[int, float]]:
        """Sentences per second of every length, as `lattemix measure` finds them."""
        return [(speed.length, speed.sentences) for speed in measure_speed(self.encoder, seconds)]

    def __call__(self, texts: Sequence[str], at_once: int = 0) -> float:
        """All texts in one call, or so many in each."""
        step = at_once or len(texts)
        parts = [texts[start : start + step] for start in range(0, len(texts), step)]
        return timed(lambda: [self.encoder.encode(part) for part in parts])


class SentenceTransformers:
    """`SentenceTransformer.encode`, in batches of 32; it pools, and has no head."""

    def __init__(self, checkpoint: Path) -> None:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self._model = SentenceTransformer(str(checkpoint), device="cpu")
        self(sentences(0, WARM_UP))

    def __call__(self, texts: Sequence[str]) -> float:
        """All texts in one call."""
        return timed(
            lambda: self._model.encode(list(texts), batch_size=32, show_progress_bar=False)
        )


class BareCalls:
    """Our `model.onnx` in ONNX Runtime as it comes, a call for each text, tokenized beforehand."""

    def __init__(self, precision: Precision) -> None:
        model = artifact(precision)
        self._tokenizer = Tokenizer(model.tokenizer, model.manifest.max_tokens)
        self._session = session(model.model)
        self(sentences(0, WARM_UP))

    def __call__(self, texts: Sequence[str]) -> list[float]:
        """Seconds of each call."""
        every = [feeds(self._session, [tokens]) for tokens in self._tokenizer(texts)]
        return [timed(lambda each=each: self._session.run(None, each)) for each in every]  # type: ignore[misc]


class Graph:
    """A graph with our signature in ONNX Runtime as it comes, on batches of similar lengths."""

    def __init__(self, model: Path, tokenizer: Path, max_tokens: int) -> None:
        self._tokenizer, self._session = Tokenizer(tokenizer, max_tokens), session(model)
        self(sentences(0, WARM_UP))

    def __call__(self, texts: Sequence[str]) -> float:
        """All texts, tokenized here."""

        def encode() -> None:
            tokens = self._tokenizer(texts)
            for batch in batches([len(each.ids) for each in tokens], GRAPH_TOKENS):
                self._session.run(None, feeds(self._session, [tokens[i] for i in batch]))

        return timed(encode)


def exporter() -> Callable[..., None]:
    """What exports by torch, for a process that then ends: no contestant is to carry torch."""
    from benchmarks.export import export

    return export


class Products:
    """The machine's limit: every product of tokens with a matrix of the model, and nothing else."""

    def __init__(self, shapes: Sequence[tuple[int, int]]) -> None:
        chance = np.random.default_rng(0)
        self._matrices = [chance.standard_normal(shape, np.float32) for shape in shapes]
        self._widest = max(max(shape) for shape in shapes)

    def __call__(self, lengths: Sequence[int], token_budget: int) -> tuple[float, float]:
        """GFLOP/s, padding counted as work, on the batches that the engine makes.

        The first is with each batch on all cores, the second with a batch on every core.
        """
        sizes = [len(b) * max(lengths[i] for i in b) for b in batches(lengths, token_budget)]
        work = 2e-9 * sum(sizes) * sum(matrix.size for matrix in self._matrices)
        return work / self._seconds(sizes, 1), work / self._seconds(sizes, usable_cores())

    def _seconds(self, sizes: Sequence[int], places: int) -> float:
        """Of batches of so many tokens, in so many places at once."""
        room = [np.ones((2, max(sizes) * self._widest), np.float32) for _ in range(places)]

        def multiply(place: int) -> None:
            given, made = room[place]
            for size in sizes[place::places]:
                for matrix in self._matrices:
                    rows, columns = matrix.shape
                    np.matmul(
                        given[: size * rows].reshape(size, rows),
                        matrix,
                        out=made[: size * columns].reshape(size, columns),
                    )

        threads = usable_cores() // places
        with threadpool_limits(threads, user_api="blas"), ThreadPoolExecutor(places) as pool:
            return timed(lambda: list(pool.map(multiply, range(places))))


def session(model: Path) -> ort.InferenceSession:
    """ONNX Runtime with the options it has by itself, but for a fusion that only slows it."""
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(
        str(model),
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["SkipLayerNormFusion"],
    )


def feeds(to: ort.InferenceSession, batch: Sequence[Tokens]) -> Feeds:
    """A batch as the graph takes it, tokens weighing the same."""
    shape = (len(batch), max(len(tokens.ids) for tokens in batch))
    ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    for row, tokens in enumerate(batch):
        ids[row, : len(tokens.ids)] = tokens.ids
        mask[row, : len(tokens.ids)] = 1
    pool = (mask / mask.sum(axis=1, keepdims=True)).astype(np.float32)[:, None]
    made = {"input_ids": ids, "attention_mask": mask, "pool": pool}
    return {node.name: made[node.name] for node in to.get_inputs()}
