"""Engines for the backbone, each with the settings that measured best on two cores.

Heavy packages are imported where they are used, so that no other engine loads them.
"""

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import conversions

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]

CORES = len(os.sched_getaffinity(0))
MAX_TOKENS = 256


class Peer(ABC):
    """Texts to mean-pooled vectors."""

    @abstractmethod
    def vectors(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts: [N, H]."""

    def __call__(self, texts: Sequence[str]) -> float:
        """Seconds to encode all texts in one call."""
        start = time.perf_counter()
        self.vectors(texts)
        return time.perf_counter() - start

    def similarities(self, a: Sequence[str], b: Sequence[str]) -> list[float]:
        """Return the cosine of each pair of texts."""
        first, second = self.vectors(a), self.vectors(b)
        norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
        cosines: list[float] = ((first * second).sum(axis=1) / norms).tolist()
        return cosines


class Engine(Peer):
    """An engine that takes token ids. Batches of similar length run side by side."""

    batch_tokens = 512
    workers = CORES

    def __init__(self, checkpoint: Path) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(MAX_TOKENS)

    def vectors(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts: [N, H]."""
        encodings = self._tokenizer.encode_batch_fast(list(texts))
        rows: list[list[int]] = [encoding.ids for encoding in encodings]
        planned = list(batches([len(row) for row in rows], self.batch_tokens))

        def run(batch: list[int]) -> Floats:
            return self._pooled([rows[i] for i in batch])

        with ThreadPoolExecutor(self.workers) as executor:
            pooled = np.concatenate(list(executor.map(run, planned)))
        vectors = np.empty_like(pooled)
        vectors[np.concatenate(planned)] = pooled
        return vectors

    def _pooled(self, rows: Sequence[list[int]]) -> Floats:
        lengths = np.array([len(row) for row in rows])
        mask = np.arange(lengths.max()) < lengths[:, None]  # [B, S]
        ids = np.zeros(mask.shape, np.int64)
        ids[mask] = np.concatenate([np.array(row) for row in rows])
        pool = (mask / lengths[:, None]).astype(np.float32)[:, None]  # [B, 1, S]
        pooled: Floats = (pool @ self.hidden_states(ids, mask.astype(np.int64)))[:, 0]
        return pooled

    @abstractmethod
    def hidden_states(self, ids: Integers, mask: Integers) -> Floats:
        """Run one padded batch [B, S]; return its token vectors: [B, S, H]."""


class CTranslate2(Engine):
    """CTranslate2 in int8: one single-threaded worker per core."""

    def __init__(self, checkpoint: Path, directory: Path) -> None:
        import ctranslate2

        super().__init__(checkpoint)
        model = conversions.ctranslate2_int8(checkpoint, directory)
        self._encoder = ctranslate2.Encoder(
            str(model), compute_type="int8", inter_threads=CORES, intra_threads=1
        )
        self._view = ctranslate2.StorageView.from_array

    def hidden_states(self, ids: Integers, mask: Integers) -> Floats:
        """Run one padded batch."""
        lengths = self._view(mask.sum(axis=1).astype(np.int32))
        output = self._encoder.forward_batch(self._view(ids.astype(np.int32)), lengths)
        return np.array(output.last_hidden_state, copy=False)


class OnnxRuntime(Engine):
    """ONNX Runtime with dynamic int8: fused by its transformer optimiser, then quantised."""

    batch_tokens = 256

    def __init__(self, checkpoint: Path, directory: Path) -> None:
        import onnxruntime

        super().__init__(checkpoint)
        model = conversions.onnxruntime_int8(checkpoint, directory)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1  # concurrent runs instead
        self._session = onnxruntime.InferenceSession(model, options)
        self._inputs = {each.name for each in self._session.get_inputs()}

    def hidden_states(self, ids: Integers, mask: Integers) -> Floats:
        """Run one padded batch."""
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        feeds = {name: value for name, value in feeds.items() if name in self._inputs}
        hidden: Floats = self._session.run(None, feeds)[0]
        return hidden


class OpenVino(Engine):
    """OpenVINO with its throughput hint, in bf16 or quantised to int8 by NNCF."""

    def __init__(self, checkpoint: Path, directory: Path, precision: str) -> None:
        import openvino

        super().__init__(checkpoint)
        core = openvino.Core()
        if "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise RuntimeError("the processor has no bf16")
        model = conversions.openvino_model(checkpoint, directory, precision)
        config = {"PERFORMANCE_HINT": "THROUGHPUT", "INFERENCE_PRECISION_HINT": "bf16"}
        compiled = core.compile_model(model, "CPU", config)
        self._inputs = {each.get_any_name() for each in compiled.inputs}
        self._requests = [compiled.create_infer_request() for _ in range(CORES)]

    def hidden_states(self, ids: Integers, mask: Integers) -> Floats:
        """Run one padded batch."""
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        request: Any = self._requests.pop()
        try:
            feeds = {name: value for name, value in feeds.items() if name in self._inputs}
            hidden: Floats = request.infer(feeds)[0].copy()
            return hidden
        finally:
            self._requests.append(request)


class SentenceTransformers(Peer):
    """`SentenceTransformer.encode` in batches of 32, which it sorts by length."""

    def __init__(
        self, directory: Path, backend: Literal["torch", "onnx"] = "torch", **options: str
    ) -> None:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self._model: Any = SentenceTransformer(
            str(directory), device="cpu", backend=backend, model_kwargs=options
        )

    def vectors(self, texts: Sequence[str]) -> Floats:
        """Return the vectors of texts: [N, H]."""
        vectors: Floats = self._model.encode(list(texts), batch_size=32, show_progress_bar=False)
        return vectors


def batches(lengths: Sequence[int], token_budget: int) -> Iterator[list[int]]:
    """Group indices of similar lengths so that `longest x count` stays within the budget."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[index] * (len(batch) + 1) > token_budget:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
