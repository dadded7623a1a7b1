"""The naive kernels that ours are compared with."""

import numpy as np
import pytest

from benchmarks.parts import kernels
from lattemix.similarity import matrix, similarity
from model_store import Metric


@pytest.mark.parametrize("metric", kernels.METRICS)
def test_naive_kernels_agree_with_ours(metric: Metric) -> None:
    a, b = kernels.mixtures(0, 6), kernels.mixtures(1, 6)
    np.testing.assert_allclose(a.sum(axis=-1), 1, atol=1e-5)
    pairs = np.array([kernels.naive(metric, x, y) for x, y in zip(a, b, strict=True)])
    np.testing.assert_allclose(pairs, similarity(metric, a, b), atol=kernels.TOLERANCE)
    table = np.array([kernels.naive(metric, x, b) for x in a])
    np.testing.assert_allclose(table, matrix(metric, a, b), atol=kernels.TOLERANCE)
