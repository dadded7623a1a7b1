"""Static quantisation ranges, measured on a list of sentences."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper

from lattemix.build.backbones import Checkpoint
from lattemix.build.graph import Array, Quantisation, RecordingGraph, quantise_weight
from lattemix.build.head import Head
from lattemix.build.network import build_model
from lattemix.tokenization import Tokenizer

_LEVELS = 255
_CLIPPING = np.linspace(1.0, 0.3, 15)  # fractions of either end of the range to try
_SAMPLE_VALUES = 100_000  # about, per product: enough to choose a range by
_SAMPLE_TOKENS = 256  # whose products are compared
_SMOOTHING = (0.0, 0.5, 0.75, 1.0)  # exponents of the channels' scales to try
_REQUIRED_GAIN = 0.8  # channel scales cost an operator: they must reduce the loss to this share
_MAX_LOSS = 0.008  # relative squared error of a product
_TINY = 1e-4


@lru_cache
def sentences() -> tuple[str, ...]:
    """Return everyday sentences of many lengths and kinds."""
    text = (Path(__file__).parent / "activations.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


def measure_activations(checkpoint: Checkpoint, head: Head) -> dict[str, Quantisation]:
    """Return the best quantisation of each matrix product's input, by the product's name.

    Products that would lose too much precision are left out.
    """
    session, products = _recording_session(checkpoint, head)
    names = list(dict.fromkeys(name for name, _ in products.values()))
    inputs: dict[str, list[NDArray[np.float32]]] = {name: [] for name in names}
    tokenizer = Tokenizer(checkpoint.tokenizer, head.spec.max_tokens)
    for tokens in tokenizer(sentences()):
        ids = np.array([tokens.ids])  # a sentence at a time: padding must not be measured
        pool = np.full((1, 1, ids.size), 1 / ids.size, np.float32)
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "pool": pool}
        for name, values in zip(names, session.run(names, feeds), strict=True):
            inputs[name].append(values[0])  # [S, in]
    best = {
        product: _best_quantisation(np.concatenate(inputs[name]), matrix)
        for product, (name, matrix) in products.items()
    }
    return {product: found for product, found in best.items() if found is not None}


def _recording_session(
    checkpoint: Checkpoint, head: Head
) -> tuple[ort.InferenceSession, dict[str, tuple[str, Array]]]:
    """The float32 model with the input of each product as an output, and the products."""
    graph = RecordingGraph()
    model = build_model(checkpoint, head, graph)
    for name in {name for name, _ in graph.products.values()}:
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    serialized = model.SerializeToString()
    del model  # ONNX Runtime makes another copy
    session = ort.InferenceSession(serialized, providers=["CPUExecutionProvider"])
    return session, graph.products


def _best_quantisation(values: Array, matrix: Array) -> Quantisation | None:
    """The quantisation of values [T, in] with the least error in their product with a matrix.

    Some channels may be much larger than the others, for every token. Then dividing each channel
    by a scale of its own, and multiplying the matrix's row by it, reduces the error (SmoothQuant).
    But it also widens the range of the weights, so that several strengths are tried.

    Returns:
        None if even the best one loses too much.
    """
    rows = values[:: max(1, len(values) // _SAMPLE_TOKENS)]
    expected = rows @ matrix
    largest = np.maximum(np.abs(values).max(axis=0), _TINY)  # [in]

    def loss(quantisation: Quantisation) -> float:
        channels = quantisation.channel_scales
        channels = np.ones(len(matrix), np.float32) if channels is None else channels
        integers, scales = quantise_weight(matrix * channels[:, None])
        product = _round_trip(rows / channels, quantisation) @ integers.astype(np.float32) * scales
        # Relative to each token: a few with enormous values must not dominate.
        error, total = (np.square(x).sum(axis=1) for x in (product - expected, expected))
        return float((error / np.maximum(total, _TINY)).mean())

    plain, *smoothed = [_smoothed(values, largest, exponent) for exponent in _SMOOTHING]
    best = min(smoothed, key=loss)
    best = best if loss(best) < _REQUIRED_GAIN * loss(plain) else plain
    return best if loss(best) < _MAX_LOSS else None


def _smoothed(values: Array, largest: Array, exponent: float) -> Quantisation:
    if not exponent:
        return best_range(values)
    channel_scales = _short(np.power(largest, exponent, dtype=np.float32))
    scaled = best_range(values / channel_scales)
    return Quantisation(scaled.scale, scaled.zero_point, channel_scales)


def best_range(values: Array) -> Quantisation:
    """Return the range with the least squared error, which may clip rare large values."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    # Whole rows [in] of [T, in]: a stride over single values could miss channels.
    sample = values[:: max(1, values.size // _SAMPLE_VALUES)]

    def loss(low: float, high: float) -> float:
        return float(((sample - _round_trip(sample, _range(low, high))) ** 2).mean())

    high = min((high * share for share in _CLIPPING), key=lambda end: loss(low, end))
    low = min((low * share for share in _CLIPPING), key=lambda end: loss(end, high))
    return _range(low, high)


def _range(low: float, high: float) -> Quantisation:
    scale = max(float(_short(np.float32((high - low) / _LEVELS))), _TINY)
    return Quantisation(scale, int(np.clip(np.round(-low / scale), 0, _LEVELS)))


def _short(values: Array | np.float32) -> Array:
    """Round to float16 precision: the last digits differ between machines, the file must not."""
    return np.asarray(values, np.float16).astype(np.float32)


def _round_trip(values: Array, quantisation: Quantisation) -> Array:
    """Quantise values and convert them back."""
    scale, zero_point = quantisation.scale, quantisation.zero_point
    levels = np.clip(np.round(values / scale) + zero_point, 0, _LEVELS)
    restored: Array = (levels - zero_point) * np.float32(scale)
    return restored
