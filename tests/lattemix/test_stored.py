from typing import Any

import numpy as np
import pytest

from lattemix import FingerprintError, LatteMixError, Model, TruncationWarning, stored
from lattemix.encoder import Encoder
from tests.tiny import SENTENCES


@pytest.fixture(scope="module")
def model(encoder: Encoder) -> Model:
    return Model(encoder)


def rank(model: Model, mixtures: Any, **options: Any) -> Any:
    options = {"fingerprint": model.info().fingerprint, **options}
    return model.rank_mixtures("a dog", mixtures, **options)


@pytest.mark.parametrize("metric", [None, "cosine", "js"])
def test_ranks_stored_mixtures_like_their_texts(
    model: Model, metric: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored, "_CHUNK", 3)
    mixtures = model.encode(SENTENCES)
    expected = model.rank("a dog", SENTENCES, metric=metric)
    for form in (mixtures, mixtures.reshape(10, 20), iter(mixtures)):
        results = rank(model, form, metric=metric)
        assert [result.index for result in results] == [result.index for result in expected]
        scores = [[result.score for result in part] for part in (results, expected)]
        np.testing.assert_allclose(*scores, atol=1e-6)
    assert [r.index for r in rank(model, mixtures, top_k=2)] == [
        r.index for r in model.rank("a dog", SENTENCES, top_k=2)
    ]
    assert rank(model, []) == []


def test_leaves_out_mixtures_with_nan(model: Model) -> None:
    mixtures = model.encode(SENTENCES)
    mixtures[4] = np.nan
    assert sorted(result.index for result in rank(model, mixtures)) == [0, 1, 2, 3, 5, 6, 7, 8, 9]


def test_warns_of_a_truncated_query(model: Model) -> None:
    options: Any = {"fingerprint": model.info().fingerprint, "truncate": "right"}
    with pytest.warns(TruncationWarning, match="^1 of 1 texts"):
        model.rank_mixtures("dog " * 40, model.encode(SENTENCES), **options)


def test_rejects_mixtures_of_another_model(model: Model) -> None:
    with pytest.raises(FingerprintError) as raised:
        rank(model, [], fingerprint="0123456789ab")
    assert str(raised.value) == (
        f"mixtures: the fingerprint is 0123456789ab, and model tiny has {model.info().fingerprint}:"
        " choose the model that computed the mixtures, or encode the sentences again."
    )


@pytest.mark.parametrize(
    ("mixtures", "message"),
    [
        (np.zeros((2, 5, 4)), r"^mixtures\[0\] has shape \(5, 4\), and .* have \(4, 5\)\.$"),
        ([np.zeros(20), np.zeros(19)], r"^mixtures\[1\] has shape \(19,\)"),
    ],
)
def test_names_a_mixture_of_another_shape(model: Model, mixtures: Any, message: str) -> None:
    with pytest.raises(LatteMixError, match=message):
        rank(model, mixtures)
