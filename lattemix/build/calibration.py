"""What enters each product of a graph: measured on sentences, so that bytes can stand for it."""

from functools import lru_cache
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper

from lattemix.build.arithmetic import Observing, Range, seven_bits
from lattemix.build.backbones import Checkpoint
from lattemix.build.build import build
from lattemix.build.graph import Array, Graph
from lattemix.build.head import Head
from lattemix.tokenization import Tokenizer

_LEVELS = 255
_SHARES = np.linspace(1.0, 0.3, 15)  # of either end, tried for the least error
_MOST_VALUES = 100_000  # of one product, about: enough to choose by
_MOST_ROWS = 256  # tokens whose products are compared
_STRENGTHS = (0.0, 0.5, 0.75, 1.0)
_WORTH_IT = 0.8  # of the loss: scales of channels cost an operator of their own
_BEARABLE = 0.008  # of a token's product, in squares
_TINY = 1e-4


@lru_cache
def sentences() -> tuple[str, ...]:
    """Ordinary ones, of many lengths and kinds."""
    text = (Path(__file__).parent / "calibration.txt").read_text(encoding="utf-8")
    return tuple(text.splitlines())


def calibrate(checkpoint: Checkpoint, head: Head) -> dict[str, Range]:
    """The range of what enters each product, by the product's name; not of those that lose much."""
    session, observed = _observing(checkpoint, head)
    names = list(dict.fromkeys(name for name, _ in observed.values()))
    found: dict[str, list[NDArray[np.float32]]] = {name: [] for name in names}
    tokenizer = Tokenizer(checkpoint.tokenizer, head.spec.max_tokens)
    for tokens in tokenizer(sentences()):
        ids = np.array([tokens.ids])  # one at a time: padding would be measured, too
        pool = np.full((1, 1, ids.size), 1 / ids.size, np.float32)
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids), "pool": pool}
        for name, values in zip(names, session.run(names, feeds), strict=True):
            found[name].append(values[0])  # [S, in]
    ranges = {
        product: _range_of(np.concatenate(found[name]), matrix)
        for product, (name, matrix) in observed.items()
    }
    return {product: range_ for product, range_ in ranges.items() if range_ is not None}


def _observing(
    checkpoint: Checkpoint, head: Head
) -> tuple[ort.InferenceSession, dict[str, tuple[str, Array]]]:
    """The graph in float32, giving also what enters each product; and the products."""
    numbers = Observing(Graph())
    model = build(checkpoint, head, lambda graph: numbers)
    for name in {name for name, _ in numbers.observed.values()}:
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))
    serialized = model.SerializeToString()
    del model  # of several copies in memory, one less
    session = ort.InferenceSession(serialized, providers=["CPUExecutionProvider"])
    return session, numbers.observed


def _range_of(values: Array, matrix: Array) -> Range | None:
    """The range of values [T, in] that loses least of their product with a matrix [in, out].

    None if even that loses too much.

    Some channels may be far larger than the others, the same ones for every token. Then they all
    lose less if each is divided by a scale of its own, by which the matrix's row is multiplied;
    but that widens the rows, so it is tried in several strengths.
    """
    rows = values[:: max(1, len(values) // _MOST_ROWS)]
    expected = rows @ matrix
    largest = np.maximum(np.abs(values).max(axis=0), _TINY)  # [in]
    plain, *others = [_scaled_range(values, largest, strength) for strength in _STRENGTHS]

    def loss(found: Range) -> float:
        channels = np.float32(1) if found.channels is None else found.channels
        rounded, scales = seven_bits(matrix * np.reshape(channels, (-1, 1)))
        product = (_through(rows / channels, found) @ rounded.astype(np.float32)) * scales
        # Of each token by itself: a few with enormous values must not speak for all.
        lost, whole = (np.square(x).sum(axis=1) for x in (product - expected, expected))
        return float((lost / np.maximum(whole, _TINY)).mean())

    best = min(others, key=loss)
    best = best if loss(best) < _WORTH_IT * loss(plain) else plain
    return best if loss(best) < _BEARABLE else None


def _scaled_range(values: Array, largest: Array, strength: float) -> Range:
    if not strength:
        return best_range(values)
    channels = _few_digits(np.power(largest, strength, dtype=np.float32))
    found = best_range(values / channels)
    return Range(found.scale, found.zero, channels)


def best_range(values: Array) -> Range:
    """The range that loses least, in squares: rare large values may be worth cutting off."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    # Whole rows [in] of [T, in]: a stride over single values could pass by the same channels.
    sample = values[:: max(1, values.size // _MOST_VALUES)]

    def loss(low: float, high: float) -> float:
        return float(((sample - _through(sample, _range(low, high))) ** 2).mean())

    high = min((high * share for share in _SHARES), key=lambda end: loss(low, end))
    low = min((low * share for share in _SHARES), key=lambda end: loss(end, high))
    return _range(low, high)


def _range(low: float, high: float) -> Range:
    scale = max(float(_few_digits(np.float32((high - low) / _LEVELS))), _TINY)
    return Range(scale, int(np.clip(np.round(-low / scale), 0, _LEVELS)))


def _few_digits(values: Array | np.float32) -> Array:
    """The last digits differ between machines, and the file would, too."""
    return np.asarray(values, np.float16).astype(np.float32)


def _through(values: Array, found: Range) -> Array:
    """What is left of values that were bytes."""
    levels = np.clip(np.round(values / found.scale) + found.zero, 0, _LEVELS)
    restored: Array = (levels - found.zero) * np.float32(found.scale)
    return restored
