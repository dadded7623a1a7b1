"""`lattemix.dedup`: lists of texts."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lattemix
from lattemix import LatteMixError
from lattemix.bulk.dedup.lists import Deduplication
from model_store import Artifact
from tests.tiny import SENTENCES

A, B, C = SENTENCES[:3]


def dedup(artifact: Artifact, texts: list[str], **options: Any) -> Deduplication:
    store = artifact.path.parent.parent
    return lattemix.dedup(
        texts, **({"model": "tiny", "threshold": 0.999, "store": store} | options)
    )


def test_drops_texts_that_are_similar_to_an_earlier_one(artifact: Artifact) -> None:
    result = dedup(artifact, [A, B, A.upper(), A, C])
    assert result.texts == [A, B, C]
    assert result.kept == [0, 1, 4]
    assert [(d.index, d.kept) for d in result.duplicates] == [(2, 0), (3, 0)]
    assert all(d.score >= 0.999 and not d.in_against for d in result.duplicates)


def test_keeps_all_texts_without_words(artifact: Artifact) -> None:
    result = dedup(artifact, ["", A, "", "\ud800", A])
    assert result.texts == ["", A, "", "\ud800"]
    assert result.not_compared == [0, 2, 3]


@pytest.mark.parametrize(
    ("keep", "kept"), [("first", [0]), ("longest", [1]), ("shortest", [2]), ([1, 0, 3, 2], [2])]
)
def test_keeps_the_text_of_the_rule(artifact: Artifact, keep: Any, kept: list[int]) -> None:
    texts = [f"{A} ", f"  {A}  ", A, f" {A}"]
    assert dedup(artifact, texts, keep=keep).kept == kept


def test_drops_what_another_list_has(artifact: Artifact) -> None:
    result = dedup(artifact, [A, B, B], against=[C, A.upper()])
    assert result.texts == [B]
    assert [(d.index, d.kept, d.in_against) for d in result.duplicates] == [
        (0, 1, True),
        (2, 1, False),
    ]
    only = dedup(artifact, [A, B, B], against=[C, A.upper()], against_only=True)
    assert only.texts == [B, B]


def test_a_second_model_decides(artifact: Artifact) -> None:
    strict = dedup(artifact, [A, B], threshold=0.99999, rescore="tiny", floor=-1.0)
    loose = dedup(artifact, [A, B], threshold=-1.0, rescore="tiny", floor=-1.0)
    assert (strict.texts, loose.texts) == ([A, B], [A])


@pytest.mark.parametrize("texts", [[], [""], ["", ""]])
def test_handles_lists_without_words(artifact: Artifact, texts: list[str]) -> None:
    result = dedup(artifact, texts)
    assert (result.texts, result.duplicates) == (texts, [])


@settings(max_examples=20, deadline=None, suppress_health_check=[*HealthCheck])
@given(texts=st.lists(st.sampled_from([*SENTENCES[:4], A.upper(), "", "..."]), max_size=12))
def test_loses_no_text(artifact: Artifact, texts: list[str]) -> None:
    result = dedup(artifact, texts)
    assert sorted(result.kept + [d.index for d in result.duplicates]) == [*range(len(texts))]
    assert {d.kept for d in result.duplicates} <= {*result.kept}
    again = dedup(artifact, result.texts)
    assert again.texts == result.texts


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"threshold": None}, "tiny has no default threshold for"),
        ({"threshold": 1.5}, "threshold is 1.5: scores of"),
        ({"threshold": 0.5, "floor": 0.6}, "threshold is 0.5, below floor 0.6"),
        ({"threshold_on": "rating"}, "threshold_on is 'rating', and the model has no calibration"),
        ({"metric": "l2"}, "metric is 'l2': dedup compares by cosine, bhattacharyya or centred"),
        ({"keep": [1.0]}, "keep has 1 numbers, for 2 texts"),
        ({"keep": [1.0, float("nan")]}, r"keep\[1\] is NaN"),
        ({"keep": "last"}, "keep is 'last': choose among first, longest, shortest"),
        ({"linkage": "single"}, "linkage is 'single': choose among keeper, complete"),
        ({"model": "none"}, "none"),
    ],
)
def test_rejects_invalid_options(artifact: Artifact, options: dict[str, Any], message: str) -> None:
    with pytest.raises(LatteMixError, match=message):
        dedup(artifact, [A, B], **options)


def test_rejects_texts_that_are_not_strings(artifact: Artifact, tmp_path: Path) -> None:
    with pytest.raises(LatteMixError, match=r"texts\[1\] is int"):
        dedup(artifact, [A, 1])  # type: ignore[list-item]
