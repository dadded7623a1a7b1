"""`lattemix calibrate`: learn from labelled pairs what a model's scores mean."""

import shutil
from collections.abc import Sequence

from pydantic import BaseModel, Field

from lattemix.labelled.agreement import Agreement, agreement, resamples_of, score_pairs
from lattemix.labelled.fit import Choice, choose, fit
from lattemix.labelled.measures import (
    Bin,
    CurvePoint,
    Goal,
    Ranking,
    Threshold,
    brier,
    calibration_error,
    reliability,
)
from lattemix.labelled.pairs import LabelledPairs
from lattemix.model import Model
from lattemix.settings import Truncate
from lattemix.similarity import score_range
from model_store import Artifact, LatteMixError, Metric, Store
from model_store.calibration import CALIBRATION, Calibration
from model_store.manifest import file_record

Goals = Sequence[tuple[Goal, float]]

DEFAULT_GOALS: Goals = (
    ("precision", 0.8),
    ("precision", 0.9),
    ("precision", 0.95),
    ("recall", 0.8),
    ("recall", 0.9),
    ("recall", 0.95),
)


class CalibrationReport(BaseModel):
    """A calibration, and how well it and its alternatives agree with the labels."""

    calibration: Calibration
    losses: dict[str, float] = Field(
        description="Held-out cross-entropy in nats, by `metric/method`."
    )
    metrics: dict[Metric, Agreement]
    bins: list[Bin] = Field(description="Held-out predictions and labels, from 0 to 1.")
    curve: list[CurvePoint] = Field(description="Precision and recall by threshold.")
    thresholds: list[Threshold]
    not_reached: list[str] = Field(description="Wanted precisions or recalls that none gives.")


def calibrate(
    model: Model,
    pairs: LabelledPairs,
    head: str,
    about: str,
    goals: Goals = DEFAULT_GOALS,
    seed: int = 0,
    truncate: Truncate | None = None,
) -> CalibrationReport:
    """Fit a calibration and measure it by cross-validation.

    Args:
        model: the model whose scores to map.
        pairs: labelled pairs.
        head: digest of the model's head.
        about: description of the pairs, for users of the model.
        goals: wanted precisions and recalls, for labels 0 and 1.
        seed: of the folds.
        truncate: how to handle long texts.
    """
    info = model.info()
    ranges = {metric: score_range(metric, info.latent_dims) for metric in info.metrics}
    scores = score_pairs(model, pairs, info.metrics, truncate)
    choice = choose(scores, pairs, ranges, seed)
    chosen = scores[choice.metric]
    fitted = fit(choice.method, chosen, pairs.targets, ranges[choice.metric])
    low, high = pairs.scale
    agreements = {metric: agreement(values, pairs) for metric, values in scores.items()}
    calibration = Calibration(
        head=head,
        metric=choice.metric,
        kind=pairs.kind,
        scale=pairs.scale,
        method=choice.method,
        scores=tuple(fitted.scores.tolist()),
        values=tuple((low + (high - low) * fitted.values).tolist()),
        about=about,
        pairs=len(pairs),
        fitted_on=info.model_id,
        held_out=_held_out(choice, pairs, agreements[choice.metric]),
    )
    curve, thresholds, not_reached = [], [], []
    if pairs.is_binary:
        ranking = Ranking(chosen, pairs.labels)
        curve = ranking.points()
        for goal, wanted in goals:
            threshold = ranking.threshold(goal, wanted, resamples_of(len(pairs)))
            if threshold:
                thresholds.append(threshold)
            else:
                not_reached.append(f"No threshold has a {goal} of {wanted:g} on these pairs.")
    return CalibrationReport(
        calibration=calibration,
        losses={f"{metric}/{method}": loss for (metric, method), loss in choice.losses.items()},
        metrics=agreements,
        bins=reliability(choice.held_out, pairs.targets),
        curve=curve,
        thresholds=thresholds,
        not_reached=not_reached,
    )


def _held_out(choice: Choice, pairs: LabelledPairs, measured: Agreement) -> dict[str, float]:
    """Measures of the held-out predictions."""
    estimates = {name: estimate for name, estimate in measured if estimate is not None}
    return {
        "calibration_error": round(calibration_error(choice.held_out, pairs.targets), 4),
        "brier": round(brier(choice.held_out, pairs.targets), 4),
        "log_loss": round(choice.losses[choice.metric, choice.method], 4),
        **{name: round(estimate.value, 4) for name, estimate in estimates.items()},
    }


def check_target(store: Store, name: str, artifact: Artifact) -> None:
    """Raise `LatteMixError` if `name` is a model of other weights."""
    for precision in store.precisions(name):
        other = store.open(f"{name}:{precision}").manifest
        if other.head.sha256 != artifact.manifest.head.sha256:
            raise LatteMixError(
                f"{store.root} has another model {name!r}, of other weights: choose another --out."
            )


def publish(store: Store, artifact: Artifact, name: str, calibration: Calibration) -> Artifact:
    """Publish a copy of an artifact with a calibration, which recommends the fitted metric."""
    check_target(store, name, artifact)
    manifest = artifact.manifest
    with store.publish(name, manifest.precision) as staging:
        for file in manifest.files:
            shutil.copyfile(artifact.path / file, staging / file)
        calibration.write(staging / CALIBRATION)
        record = file_record(staging / CALIBRATION)
        changes = {
            "name": name,
            "recommended_metric": calibration.metric,
            "files": {**manifest.files, CALIBRATION: record},
        }
        manifest.model_copy(update=changes).write(staging)
    return store.open(f"{name}:{manifest.precision}")
