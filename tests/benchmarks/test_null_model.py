from pathlib import Path

import numpy as np

from benchmarks.null_model import publish
from lattemix.encoder import Encoder
from model_store import Artifact, Store


def test_returns_distributions_that_depend_on_the_text(artifact: Artifact, tmp_path: Path) -> None:
    store = Store(tmp_path)
    publish(artifact, store, "null", latent_dims=3, classes=5)
    encoder = Encoder(store.open("null"), provider="cpu")
    texts = ["a dog", "a man is eating", "a dog"]
    a, b, again = encoder.encode(texts).mixtures
    assert a.shape == (3, 5)
    np.testing.assert_allclose(a.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(a, again)
    assert not np.array_equal(a, b)
    assert encoder.static is None
