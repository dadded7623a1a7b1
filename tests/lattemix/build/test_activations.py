import numpy as np
import pytest

from lattemix.build import activations
from lattemix.build.activations import best_range, measure_activations, sentences
from lattemix.build.backbones import Checkpoint
from lattemix.build.head import Head

RNG = np.random.default_rng(0)
VALUES = RNG.normal(size=(400, 24)).astype(np.float32)
MATRIX = RNG.normal(size=(24, 32)).astype(np.float32)


def test_clips_rare_large_values_if_that_reduces_the_error() -> None:
    uniform = np.random.default_rng(0).uniform(-1, 1, 99_000).astype(np.float32)
    assert best_range(uniform).scale * 255 == pytest.approx(2, rel=0.01)
    clipped = best_range(np.append(uniform, np.float32(1.2)))
    assert clipped.scale * (255 - clipped.zero_point) < 1.1
    assert clipped.scale * clipped.zero_point == pytest.approx(1, rel=0.02)  # the other end


@pytest.mark.parametrize("values", [[0, 0], [3, 7], [-5, -1]])
def test_range_includes_zero(values: list[float]) -> None:
    quantisation = best_range(np.array(values, np.float32))
    assert quantisation.scale > 0
    assert 0 <= quantisation.zero_point <= 255
    restored = (np.arange(256) - quantisation.zero_point) * quantisation.scale
    assert 0 in restored
    assert restored.min() <= min(values) * 0.25
    assert restored.max() >= max(values) * 0.25


def test_measures_every_product(checkpoint: Checkpoint, head: Head) -> None:
    blocks = ("attention.self", "attention.output.dense", "intermediate.dense", "output.dense")
    names = {f"encoder.layer.{layer}.{block}" for layer in (0, 1) for block in blocks}
    assert measure_activations(checkpoint, head).keys() == {"head.0", *names}


def test_scales_channels_only_if_that_reduces_the_error() -> None:
    even = activations._best_quantisation(VALUES, MATRIX)
    assert even is not None
    assert even.channel_scales is None
    values, matrix = VALUES.copy(), MATRIX.copy()
    values[:, 3] *= 40  # an outlier channel that contributes no more than the others
    matrix[3] /= 40
    uneven = activations._best_quantisation(values, matrix)
    assert uneven is not None
    assert uneven.channel_scales is not None
    assert uneven.channel_scales[3] > 5 * np.median(uneven.channel_scales)


def test_rejects_quantisation_that_loses_too_much() -> None:
    values = VALUES.copy()
    values[::20] *= 1000  # outlier tokens, in every channel, which channel scales cannot help
    assert activations._best_quantisation(values, MATRIX) is None


def test_sentences_are_distinct() -> None:
    assert len(sentences()) == len(set(sentences())) > 90
    assert all(text == text.strip() for text in sentences())
