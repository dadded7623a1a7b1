"""`lattemix calibrate`: fit a calibration on labelled pairs, and store the calibrated model."""

import shutil
from collections.abc import Sequence

from pydantic import BaseModel, Field

from lattemix.labelled.agreement import (
    Agreement,
    measure_agreement,
    resamples_of,
    score_pairs,
)
from lattemix.labelled.fit import Choice, assign_folds, choose, fit
from lattemix.labelled.measures import (
    Bin,
    CurvePoint,
    Ranking,
    brier,
    calibration_error,
    log_loss,
    reliability,
)
from lattemix.labelled.pairs import LabelledPairs
from lattemix.labelled.thresholds import Goal, Threshold, find_threshold
from lattemix.model import Model
from lattemix.settings import Truncate
from lattemix.similarity import score_range
from model_store import Artifact, LatteMixError, Metric, Store
from model_store.calibration import CALIBRATION, Calibration, Method
from model_store.manifest import file_record
from model_store.store import DEFAULT_MODELS, check_name

DEFAULT_GOALS = (
    Goal("precision", 0.8),
    Goal("precision", 0.9),
    Goal("precision", 0.95),
    Goal("recall", 0.8),
    Goal("recall", 0.9),
    Goal("recall", 0.95),
)


class CalibrationReport(BaseModel):
    """A calibration, and how well it and its alternatives agree with the labels."""

    calibration: Calibration
    losses: dict[Metric, dict[Method, float]] = Field(
        description="Held-out cross-entropy, in nats."
    )
    base_loss: float = Field(
        description="Cross-entropy of the labels' mean, without any model, in nats."
    )
    metrics: dict[Metric, Agreement]
    bins: list[Bin] = Field(description="Held-out predictions and labels, from 0 to 1.")
    curve: list[CurvePoint] = Field(description="Precision and recall by threshold.")
    thresholds: list[Threshold]
    not_reached: list[Goal] = Field(description="Goals that no threshold reaches.")


def calibrate(
    model: Model,
    pairs: LabelledPairs,
    head: str,
    about: str,
    goals: Sequence[Goal] = DEFAULT_GOALS,
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
    info, targets = model.info(), pairs.targets
    scores = score_pairs(model, pairs, info.metrics, truncate)
    metrics = {metric: measure_agreement(values, pairs) for metric, values in scores.items()}
    folds = assign_folds(pairs, seed)
    ranges = {metric: score_range(metric, info.latent_dims) for metric in scores}
    choice = choose(scores, targets, folds, ranges)
    best = scores[choice.metric]
    score_map = fit(choice.method, best, targets, ranges[choice.metric])
    low, high = pairs.scale
    calibration = Calibration(
        head=head,
        metric=choice.metric,
        kind=pairs.kind,
        scale=pairs.scale,
        method=choice.method,
        scores=tuple(score_map.scores.tolist()),
        values=tuple((low + (high - low) * score_map.values).tolist()),
        about=about,
        pairs=len(pairs),
        fitted_on=info.model_id,
        held_out=_held_out(choice, pairs, metrics[choice.metric]),
    )
    curve, by_goal = [], dict[Goal, Threshold | None]()
    if pairs.is_binary:
        curve = Ranking(best, pairs.labels).points()
        resamples = resamples_of(len(pairs))
        by_goal = {
            goal: find_threshold(goal, best, pairs.labels, folds, resamples) for goal in goals
        }
    return CalibrationReport(
        calibration=calibration,
        losses={metric: dict(losses) for metric, losses in choice.losses.items()},
        base_loss=float(log_loss(0 * targets + targets.mean(), targets).mean()),
        metrics=metrics,
        bins=reliability(choice.held_out, targets),
        curve=curve,
        thresholds=[threshold for threshold in by_goal.values() if threshold],
        not_reached=[goal for goal, threshold in by_goal.items() if threshold is None],
    )


def _held_out(choice: Choice, pairs: LabelledPairs, agreement: Agreement) -> dict[str, float]:
    """Measures of the held-out predictions, and of the scores."""
    estimates = {name: estimate for name, estimate in agreement if estimate is not None}
    return {
        "calibration_error": round(calibration_error(choice.held_out, pairs.targets), 4),
        "brier": round(brier(choice.held_out, pairs.targets), 4),
        "log_loss": round(choice.losses[choice.metric][choice.method], 4),
        **{name: round(estimate.value, 4) for name, estimate in estimates.items()},
    }


def check_target(store: Store, name: str, artifact: Artifact) -> None:
    """Raise `LatteMixError` unless a copy of the artifact may have this name."""
    check_name(name)
    if name in DEFAULT_MODELS:
        raise LatteMixError(f"{name!r} is a shipped model: choose another --out.")
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
