"""What the engines share: batches, order and mean pooling."""

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from benchmarks.peers.engines import Engine, Floats, Integers

WORDS = {f"w{number}": number for number in range(50)}


class Doubling(Engine):
    """Token vectors of two numbers: the id, and twice the id. Padding must not count."""

    batch_tokens = 12

    def hidden_states(self, ids: Integers, mask: Integers) -> Floats:
        assert ids.size <= self.batch_tokens
        values = np.where(mask > 0, ids, 1e6).astype(np.float32)
        return np.stack([values, 2 * values], axis=-1)


@pytest.fixture
def engine(tmp_path: Path) -> Doubling:
    tokenizer = Tokenizer(models.WordLevel(WORDS, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return Doubling(tmp_path)


def test_vectors_are_mean_pooled_and_in_the_order_of_the_texts(engine: Doubling) -> None:
    rows = [[5], [1, 2, 3], [9, 9], [4], [7, 8, 9, 10, 11], [3, 5]]
    vectors = engine.vectors([" ".join(f"w{i}" for i in row) for row in rows])
    means = np.array([np.mean(row) for row in rows])
    np.testing.assert_allclose(vectors, np.stack([means, 2 * means], axis=1), rtol=1e-6)


def test_similarities_are_cosines(engine: Doubling) -> None:
    assert engine.similarities(["w3", "w1 w2"], ["w7", "w5"]) == pytest.approx([1, 1])
    assert engine(["w1", "w2 w3"]) > 0
