from typing import Any

import pytest

from lattemix.bulk.dedup.options import Options, Resolved, resolve_options
from lattemix.settings import ModelSettings
from model_store import LatteMixError, Store


@pytest.fixture
def static_options(model_settings: ModelSettings) -> Any:
    def resolve(**options: Any) -> Resolved:
        return resolve_options(Options(**({"model": "static"} | options)), model_settings, "cpu")

    return resolve


def test_the_metric_is_that_of_both_models(static_options: Any) -> None:
    task, comparison, threshold = static_options(
        rescore="tiny", metric="bhattacharyya", threshold=0.6
    )
    assert task.candidates.metric == "bhattacharyya"
    assert comparison.rescorer.model == "tiny:fp32"
    assert comparison.rescorer.metric == "bhattacharyya"
    assert (threshold, comparison.floor) == (0.6, pytest.approx(0.2))


def test_a_mean_of_scores_has_no_rating(static_options: Any) -> None:
    with pytest.raises(LatteMixError, match="which a mean of two models' scores has not"):
        static_options(rescore="tiny", threshold=3, threshold_on="rating")


def test_a_floor_above_the_threshold_of_a_second_model_is_no_error(static_options: Any) -> None:
    resolved = static_options(rescore="tiny", threshold=0.1, floor=0.9)
    assert (resolved.threshold, resolved.comparison.floor) == (0.1, 0.9)


@pytest.mark.parametrize(("threshold", "floor"), [(0.95, 0.85), (0.9, 0.85), (0.88, 0.83)])
def test_thresholds_above_the_default_share_a_floor(
    static_options: Any, monkeypatch: pytest.MonkeyPatch, threshold: float, floor: float
) -> None:
    defaults = {("static", "centred"): 0.9}
    monkeypatch.setattr("lattemix.bulk.dedup.options._THRESHOLDS", defaults)
    resolved = static_options(metric="centred", threshold=threshold)
    assert resolved.comparison.floor == pytest.approx(floor)
    assert static_options(metric="centred").threshold == 0.9


@pytest.mark.parametrize("threshold", [-1, 0, 1])
def test_accepts_any_possible_score(static_options: Any, threshold: float) -> None:
    assert static_options(threshold=threshold).threshold == threshold


def test_a_threshold_may_be_a_probability(
    calibrated_store: Store, model_settings: ModelSettings
) -> None:
    settings = model_settings.model_copy(update={"store": calibrated_store.root})
    options = Options(model="tiny", threshold=0.8, threshold_on="probability")
    resolved = resolve_options(options, settings, "cpu")
    assert resolved.threshold == pytest.approx(0.9)
    with pytest.raises(LatteMixError, match="which was fitted on 'centred', not on 'cosine'"):
        resolve_options(
            Options(model="tiny", metric="cosine", threshold=0.8, threshold_on="probability"),
            settings,
            "cpu",
        )
    for value in (1, 0):  # which no score has, and all scores have
        options = Options(model="tiny", threshold=value, threshold_on="probability")
        message = rf"threshold is {value}: probabilities of tiny are from 0\.\d\d to 0\.\d\d\.$"
        with pytest.raises(LatteMixError, match=message):
            resolve_options(options, settings, "cpu")
    with pytest.raises(LatteMixError, match="threshold is inf: scores of"):
        resolve_options(Options(model="tiny", threshold=float("inf")), settings, "cpu")
    with pytest.raises(LatteMixError, match="there is no threshold"):
        resolve_options(Options(model="tiny", threshold_on="probability"), settings, "cpu")
