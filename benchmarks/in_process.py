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

from benchmarks.peers.engines import Peer
from benchmarks.texts import sentences
from lattemix.encoder import Encoder
from lattemix.settings import ModelSettings, read_settings
from lattemix.similarity import similarity
from lattemix.tokenization import Tokenizer, Tokens
from model_store import Artifact, Precision, Store

WARM_UP_SENTENCES = 64


def open_artifact(precision: Precision, name: str = "default") -> Artifact:
    """One of our models."""
    return Store(read_settings(ModelSettings).store).open(f"{name}:{precision}")


def timed(function: Callable[[], object]) -> float:
    """Seconds that a call takes."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


class LatteMix:
    """`Encoder.encode`."""

    def __init__(self, precision: Precision, name: str = "default") -> None:
        self._encoder = Encoder(open_artifact(precision, name))

    def __call__(self, texts: Sequence[str]) -> float:
        """Seconds to encode all texts in one call."""
        return timed(lambda: self._encoder.encode(texts))

    def similarities(self, a: Sequence[str], b: Sequence[str]) -> list[float]:
        """Return the similarity of each pair of texts, by the model's recommended metric."""
        first, second = (self._encoder.encode(texts).mixtures for texts in (a, b))
        metric, centre = self._encoder.manifest.recommended_metric, self._encoder.centre
        scores: list[float] = similarity(metric, first, second, centre).tolist()
        return scores


class Model2Vec(Peer):
    """model2vec's static models."""

    def __init__(self, directory: Path) -> None:
        from model2vec import StaticModel

        self._model = StaticModel.from_pretrained(directory)

    def vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of texts: [N, H]."""
        vectors: NDArray[np.float32] = self._model.encode(texts)
        return vectors


class BareCalls:
    """`run` of our `model.onnx` in plain ONNX Runtime, with its default threads."""

    def __init__(self, precision: Precision) -> None:
        artifact = open_artifact(precision)
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

    def __call__(self, texts: Sequence[str]) -> list[float]:
        """Seconds of one `run` per text, tokenized beforehand."""
        inputs = [self._inputs(tokens) for tokens in self._tokenizer(texts)]
        return [timed(lambda each=each: self._session.run(None, each)) for each in inputs]  # type: ignore[misc]

    def _inputs(self, tokens: Tokens) -> dict[str, NDArray[Any]]:
        """Inputs of the graph, with uniform token weights."""
        ids = np.array([tokens.ids])  # [1, S]
        pool = np.full((1, *ids.shape), 1 / ids.size, np.float32)
        return {"input_ids": ids, "attention_mask": np.ones_like(ids), "pool": pool}
