from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lattemix.bulk.dedup import vectors
from lattemix.bulk.dedup.cells import NO_CELL
from lattemix.bulk.dedup.vectors import Models, VectorModel, Vectors, shard_result, shards
from lattemix.encoder import Encoder
from lattemix.settings import ModelSettings
from lattemix.similarity import similarity
from model_store import Metric, Store
from tests.lattemix.bulk.dedup.conftest import Run, random_texts, variant, write_lines
from tests.tiny import SENTENCES


@pytest.mark.parametrize("metric", ["cosine", "bhattacharyya", "centred"])
def test_scores_are_the_metric(encoder: Encoder, metric: Metric) -> None:
    model = VectorModel(encoder, metric, "error")
    encoded = model.encode(SENTENCES)
    left, right = (ids.ravel() for ids in np.indices((10, 10)))
    mixtures = encoder.encode(SENTENCES, "error").mixtures
    expected = similarity(metric, mixtures[left], mixtures[right], encoder.centre)
    scores = model.similarity(encoded.vectors, left, right)
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert scores.max() <= 1


def test_rejected_texts_have_a_zero_vector_and_no_score(static_encoder: Encoder) -> None:
    model = VectorModel(static_encoder, "cosine", "error")
    encoded = model.encode(["a dog", "", "a man", "!?"])
    assert {*encoded.reasons} == {1, 3}
    assert encoded.vectors.any(axis=1).tolist() == [True, False, True, False]
    ids = np.array([0, 1, 0]), np.array([1, 3, 2])
    assert np.isnan(model.similarity(encoded.vectors, *ids)).tolist() == [True, True, False]


def test_encodes_no_texts(static_encoder: Encoder) -> None:
    encoded = VectorModel(static_encoder, "cosine", "error").encode([])
    assert (len(encoded.vectors), encoded.reasons, encoded.truncated) == (0, {}, 0)


def test_counts_truncated_texts(encoder: Encoder) -> None:
    texts = ["a dog", "dog " * 40, "sea " * 40]
    assert VectorModel(encoder, "cosine", "right").encode(texts).truncated == 2
    rejected = VectorModel(encoder, "cosine", "error").encode(texts)
    assert [*rejected.reasons] == [1, 2]


def test_batches_bound_texts_and_their_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_BATCH", 3)
    monkeypatch.setattr(vectors, "_BATCH_CHARACTERS", 10)
    texts = ["a", "b", "c", "d", "e" * 9, "f", "g", "h" * 50, "i", "j" * 9, ""]
    batches = [texts[batch] for batch in vectors._batches(texts)]
    assert [text for batch in batches for text in batch] == texts
    assert max(map(len, batches)) == 3
    assert all(len(batch) == 1 or sum(map(len, batch)) <= 10 for batch in batches)
    assert [*vectors._batches([])] == []


def test_results_do_not_depend_on_batches(
    static_encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [*random_texts(20), ""]
    model = VectorModel(static_encoder, "cosine", "error")
    whole = model.encode(texts)
    monkeypatch.setattr(vectors, "_BATCH", 3)
    parts = model.encode(texts)
    np.testing.assert_allclose(parts.vectors, whole.vectors, atol=1e-12)
    assert parts.reasons == whole.reasons


@pytest.mark.parametrize("texts", [0, 1, 8192, 8193, 100_000])
def test_shards_cover_all_texts(texts: int) -> None:
    parts = shards(texts)
    assert [i for part in parts for i in range(part.start, part.stop)] == [*range(texts)]
    assert [part.number for part in parts] == [*range(len(parts))]


@pytest.fixture
def work(tmp_path: Path, run: Run, small_parts: None) -> Path:
    """Work directory of 50 texts in 4 shards; 7 is rejected."""
    texts = random_texts(50)
    texts[7] = "!?"
    run(write_lines(tmp_path / "x.txt", texts), tmp_path / "out")
    return tmp_path / "out.work"


def test_looks_up_vectors_of_any_shards(work: Path) -> None:
    stored = Vectors(work, 50)
    everything = stored(np.arange(50))
    for ids in ([3], [49, 0, 17, 16, 15, 17], [*range(32, 48)], [*range(50)][::-1]):
        np.testing.assert_array_equal(stored(np.array(ids)), everything[ids])
    assert everything.any(axis=1).tolist() == [i != 7 for i in range(50)]
    assert (stored.nearest[7] == NO_CELL).all()
    assert not (np.delete(stored.nearest, 7, axis=0) == NO_CELL).any()


def test_looks_up_no_vectors(work: Path) -> None:
    """In a cell whose texts have all been dropped."""
    stored = Vectors(work, 50)
    assert stored(np.empty(0, np.int64)).shape == (0, 20)


def test_results_of_shards_tell_how_many_texts_they_have(work: Path) -> None:
    results = [shard_result(work, shard) for shard in shards(50)]
    assert [result and result.texts for result in results] == [16, 16, 16, 2]
    (work / "vectors-00001.json").unlink()
    assert shard_result(work, shards(50)[1]) is None


def test_models_are_pickled_without_what_they_loaded(
    work: Path, model_settings: ModelSettings, static_store: Store
) -> None:
    import pickle

    models = Models(work, model_settings)
    scores: list[Any] = []
    texts = [SENTENCES[0], variant(SENTENCES[0])]
    for each in (models, pickle.loads(pickle.dumps(models))):
        scores.append(each.candidates.encode(texts).vectors)
    np.testing.assert_array_equal(*scores)
    assert len(pickle.dumps(models)) < 5000
