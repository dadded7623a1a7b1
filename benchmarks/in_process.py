"""Systems under test without a server. Each runs in a worker process and takes texts.

Heavy packages are imported where they are used, so that no other system loads them.
"""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from benchmarks.texts import sentences
from lattemix.encoder import Encoder, batches
from lattemix.settings import ModelSettings, read_settings
from lattemix.tokenization import Tokenizer, Tokens
from model_store import Artifact, Precision, Store

WARM_UP_SENTENCES = 64
BATCH_TOKENS = 1024  # per batch of plain ONNX Runtime, which runs it on all cores


def default_artifact(precision: Precision) -> Artifact:
    """The default model."""
    return Store(read_settings(ModelSettings).store).open(f"default:{precision}")


def timed(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


class LatteMix:
    """`Encoder.encode`."""

    def __init__(self, precision: Precision) -> None:
        self._encoder = Encoder(default_artifact(precision))
        self(sentences("warm-up", WARM_UP_SENTENCES))

    def __call__(self, texts: Sequence[str]) -> float:
        """Seconds to encode all texts in one call."""
        return timed(lambda: self._encoder.encode(texts))


class SentenceTransformers:
    """`SentenceTransformer.encode` in batches of 32: mean pooling, no mixture head."""

    def __init__(self, checkpoint: Path) -> None:
        from sentence_transformers import SentenceTransformer
        from transformers.utils import logging

        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        self._model = SentenceTransformer(str(checkpoint), device="cpu")
        self(sentences("warm-up", WARM_UP_SENTENCES))

    def __call__(self, texts: Sequence[str]) -> float:
        """Seconds to encode all texts in one call."""
        return timed(
            lambda: self._model.encode(list(texts), batch_size=32, show_progress_bar=False)
        )


class OnnxRuntime:
    """Our `model.onnx` in plain ONNX Runtime, with its default threads."""

    def __init__(self, precision: Precision) -> None:
        artifact = default_artifact(precision)
        self._tokenizer = Tokenizer(artifact.tokenizer, artifact.manifest.max_tokens)
        options = ort.SessionOptions()
        options.log_severity_level = 3
        self._session = ort.InferenceSession(
            str(artifact.model),
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=["SkipLayerNormFusion"],  # the fused operator is slower
        )
        self(sentences("warm-up", WARM_UP_SENTENCES))

    def __call__(self, texts: Sequence[str]) -> float:
        """Seconds to tokenize all texts and run them in batches of similar length."""

        def encode() -> None:
            tokens = self._tokenizer(texts)
            for batch in batches([len(text.ids) for text in tokens], BATCH_TOKENS):
                self._session.run(None, self._inputs([tokens[i] for i in batch]))

        return timed(encode)

    def call_seconds(self, texts: Sequence[str]) -> list[float]:
        """Seconds of one `run` per text, tokenized beforehand."""
        inputs = [self._inputs([tokens]) for tokens in self._tokenizer(texts)]
        return [timed(lambda each=each: self._session.run(None, each)) for each in inputs]  # type: ignore[misc]

    def _inputs(self, batch: Sequence[Tokens]) -> dict[str, NDArray[Any]]:
        """Padded inputs of the graph, with uniform token weights."""
        shape = (len(batch), max(len(tokens.ids) for tokens in batch))
        ids, mask = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, tokens in enumerate(batch):
            ids[row, : len(tokens.ids)] = tokens.ids
            mask[row, : len(tokens.ids)] = 1
        pool = (mask / mask.sum(axis=1, keepdims=True)).astype(np.float32)[:, None]
        return {"input_ids": ids, "attention_mask": mask, "pool": pool}
