"""The options of a run, and the models, metrics and threshold that follow from them."""

import math
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from lattemix.bulk.dedup.groups import Linkage
from lattemix.bulk.dedup.task import Comparison, Scorer, Task
from lattemix.calibrated import PLURALS, ThresholdOn, score_threshold
from lattemix.loading import assemble_if_shipped
from lattemix.settings import ModelSettings
from lattemix.similarity import check
from model_store import LatteMixError, Metric, Store
from model_store.calibration import Calibration, calibration_of
from model_store.choice import Device, choose

# Smallest scores of near-duplicates, by model and metric. docs/deduplication.md has what it finds.
_THRESHOLDS: dict[tuple[str, Metric], float] = {
    ("fast", "centred"): 0.95,
    ("default", "centred"): 0.95,
}
# Below the threshold: candidates for runs with a lower one. Not used with a second model, whose
# scores take most of the time.
_MARGIN = 0.05

# Which of several near-duplicates is kept.
Keep = Literal["first", "longest", "shortest"]


@dataclass(frozen=True)
class Options:
    """How to find duplicates, and which of them to keep. None is a default."""

    model: str = "fast"  # finds candidates
    rescore: str | None = None  # a second model: the mean of both scores decides
    metric: Metric | None = None
    threshold: float | None = None
    threshold_on: ThresholdOn = "score"
    floor: float | None = None
    against_only: bool = False
    keep: Keep | str = "first"  # another string names numbers, of which the largest is kept
    linkage: Linkage = "keeper"


def check_choice(name: str, value: str, choices: Any) -> str:
    """Return a value; raise `LatteMixError` if it is none of a literal type's."""
    known = get_args(choices)
    if value not in known:
        raise LatteMixError(f"{name} is {value!r}: choose among {', '.join(known)}.")
    return value


class Resolved(NamedTuple):
    """What follows from the options."""

    task: Task
    comparison: Comparison  # without the number of references
    threshold: float  # a score


def resolve_options(
    options: Options, settings: ModelSettings, device: Device, column: str = ""
) -> Resolved:
    """Choose models and metrics; raise `LatteMixError` for options that do not fit them."""
    finder = _open(options.model, settings, device, options.metric)
    rescorer = None
    if options.rescore is not None:
        rescorer = _open(options.rescore, settings, device, options.metric).scorer
        if options.threshold_on != "score":
            raise LatteMixError(
                f"threshold_on is {options.threshold_on!r}, which a mean of two models' scores "
                "has not: leave out rescore."
            )
    threshold = _threshold(options, finder)
    default = _THRESHOLDS.get((finder.name, finder.scorer.metric), threshold)
    floor = options.floor
    if floor is None:
        floor = min(threshold, default)
        floor = round(floor - _MARGIN if rescorer is None else smallest_first_score(floor), 6)
    if not floor <= 1:
        raise LatteMixError(f"floor is {floor:g}: scores are at most 1.")
    if rescorer is None and threshold < floor:
        raise LatteMixError(
            f"threshold is {threshold:g}, below floor {floor:g}, the smallest score of a pair."
        )
    task = Task(
        candidates=finder.scorer,
        column=column,
        truncate=settings.truncate,
        max_windows=settings.max_windows,
    )
    comparison = Comparison(
        references=0,
        against_only=options.against_only,
        floor=floor,
        rescorer=rescorer,
    )
    return Resolved(task, comparison, threshold)


def smallest_first_score(mean: float) -> float:
    """Return the smallest score of a pair whose mean with a second one, at most 1, is `mean`."""
    return 2 * mean - 1


class _Opened(NamedTuple):
    name: str
    scorer: Scorer
    calibration: Calibration | None


def _open(
    reference: str, settings: ModelSettings, device: Device, metric: Metric | None
) -> _Opened:
    assemble_if_shipped(settings.model_copy(update={"model": reference}))
    artifact, _ = choose(Store(settings.store), reference, device)
    manifest = artifact.manifest
    metric = metric or manifest.recommended_metric
    check(metric, artifact.centre)
    if metric in ("js", "l2"):
        raise LatteMixError(
            f"metric is {metric!r}: dedup compares by cosine, bhattacharyya or centred."
        )
    scorer = Scorer(model=manifest.reference, fingerprint=manifest.fingerprint, metric=metric)
    return _Opened(manifest.name, scorer, calibration_of(artifact))


def _threshold(options: Options, finder: _Opened) -> float:
    """Return the smallest score of duplicates."""
    metric = finder.scorer.metric
    given = options.threshold
    if given is None and options.threshold_on == "score":
        given = _THRESHOLDS.get((finder.name, metric))
        if given is None:
            raise LatteMixError(
                f"{finder.name} has no default threshold for {metric}: set threshold."
            )
    threshold = score_threshold(given, options.threshold_on, finder.calibration, metric)
    assert threshold is not None
    if options.threshold_on != "score" and math.isinf(threshold):
        assert finder.calibration is not None
        kinds, values = PLURALS[finder.calibration.kind], finder.calibration.values
        raise LatteMixError(
            f"threshold is {given:g}: {kinds} of {finder.name} are from {values[0]:.2f} to "
            f"{values[-1]:.2f}."
        )
    if not -1 <= threshold <= 1:
        raise LatteMixError(f"threshold is {threshold:g}: scores of {metric} are from -1 to 1.")
    return threshold
