from pathlib import Path

import numpy as np
import pytest

from lattemix.build.head import Floats, Head, HeadError
from lattemix.similarity import matrix, vectors
from model_store import latents
from model_store.latents import LATENTS, LatentClass
from tests.tiny import SENTENCES
from training.cache import VectorCache
from training.encoding import EncodedCorpus
from training.order import find_order, greedy_order, order, permuted

INFORMATIVE = [5, 2]


@pytest.fixture(scope="module")
def rows() -> Floats:
    """Unit vectors [200, 8, 4]: two dims hold the similarity, the others little noise."""
    random = np.random.default_rng(0)
    parts = 0.1 * random.normal(size=(200, 8, 4))
    parts[:, INFORMATIVE] += random.normal(size=(200, 2, 4)) * [[2], [1]]
    parts /= np.linalg.norm(parts, axis=(1, 2), keepdims=True)
    return parts.astype(np.float32)


def test_dims_that_determine_the_similarity_come_first(rows: Floats) -> None:
    found = greedy_order(rows)
    assert found[:2].tolist() == INFORMATIVE
    assert sorted(found) == list(range(8))


def test_every_prefix_is_at_least_as_close_as_that_of_the_reverse_order(rows: Floats) -> None:
    def closeness(dims: np.ndarray) -> float:
        flat = rows[:, dims].reshape(len(rows), -1)
        flat = flat / np.linalg.norm(flat, axis=1, keepdims=True)
        full = rows.reshape(len(rows), -1)
        above = np.triu_indices(len(rows), 1)
        return float(np.corrcoef((flat @ flat.T)[above], (full @ full.T)[above])[0, 1])

    found = greedy_order(rows)
    for size in range(1, 8):
        assert closeness(found[:size]) > closeness(found[::-1][:size])


def test_unused_dims_come_last(rows: Floats) -> None:
    unused = rows.copy()
    unused[:, 3] = 0
    assert greedy_order(unused)[-1] == 3 or not unused[:, greedy_order(unused)[-1]].any()


def test_permuted_head_has_the_same_mixtures_in_another_order(
    head: Head, encoded: EncodedCorpus
) -> None:
    tokens, dims = encoded.first(5), np.array([2, 0, 3, 1])
    other = permuted(head, dims)
    before, after = head.mixtures(tokens), other.mixtures(tokens)
    np.testing.assert_allclose(after, before[:, dims], atol=1e-6)
    np.testing.assert_array_equal(other.tensors["probes"], head.tensors["probes"][:, dims])
    scores = matrix("centred", before, before, head.tensors["centre"])
    np.testing.assert_allclose(
        matrix("centred", after, after, other.tensors["centre"]), scores, atol=1e-6
    )


def test_order_rewrites_a_head_and_its_descriptions(
    head: Head, encoded: EncodedCorpus, corpus: Path, backbone: Path, tmp_path: Path
) -> None:
    spec = head.spec
    head.save(tmp_path)
    described = [
        [LatentClass(usage=0.2, words={f"{dim}-{c}": 1.0}) for c in range(spec.classes)]
        for dim in range(spec.latent_dims)
    ]
    latents.write(described, str(Head.load(tmp_path).spec.sha256), tmp_path)
    cache = VectorCache(tmp_path / "cache")
    order(tmp_path, [corpus], cache, backbone=str(backbone))
    ordered = Head.load(tmp_path)
    dims = find_order(head, encoded.first(len(SENTENCES)))
    expected = permuted(head, dims).tensors
    assert ordered.tensors.keys() == expected.keys()
    for name, tensor in ordered.tensors.items():
        np.testing.assert_array_equal(tensor, expected[name])
    written = latents.read(tmp_path / LATENTS, ordered.spec.sha256, spec.latent_dims, spec.classes)
    assert written == [described[dim] for dim in dims]
    digest = ordered.spec.sha256
    order(tmp_path, [corpus], cache, backbone=str(backbone))
    assert Head.load(tmp_path).spec.sha256 == digest  # ordering again changes nothing


def test_order_rejects_heads_without_classes(head: Head, corpus: Path, tmp_path: Path) -> None:
    spec = head.spec.model_copy(update={"model": "autoencoder"})
    tensors = {name: t for name, t in head.tensors.items() if name not in ("centre", "probes")}
    tensors["encoder.0.weight"] = tensors["encoder.0.weight"][: spec.latent_dims]
    tensors["encoder.0.bias"] = tensors["encoder.0.bias"][: spec.latent_dims]
    Head(spec, tensors).save(tmp_path)
    with pytest.raises(HeadError, match="autoencoder model, which has no vectors"):
        order(tmp_path, [corpus], VectorCache(tmp_path / "cache"))


def test_prefix_of_vectors_is_a_vector_of_the_prefix(head: Head, encoded: EncodedCorpus) -> None:
    mixtures, centre = head.mixtures(encoded.first(5)), head.tensors["centre"]
    full = vectors("centred", mixtures, centre)[:, : 2 * head.spec.classes]
    full = full / np.linalg.norm(full, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors("centred", mixtures, centre, 2), full, atol=1e-6)
