"""The options of a run, and the models, metrics and threshold that follow from them."""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

from lattemix.bulk.dedup.groups import Linkage
from lattemix.bulk.dedup.task import Comparison, Scorer, Task
from lattemix.calibrated import ThresholdOn, score_threshold
from lattemix.model import assemble_if_shipped
from lattemix.settings import ModelSettings
from lattemix.similarity import check
from model_store import LatteMixError, Metric, Store
from model_store.calibration import Calibration, calibration_of
from model_store.choice import Device, choose

# By model and metric: smallest scores of near-duplicates, chosen on sentences of SNLI with planted
# ones.
_THRESHOLDS: dict[tuple[str, Metric], float] = {
    ("fast", "centred"): 0.9,
    ("default", "centred"): 0.9,
}
_RESCORING_FLOOR = 0.8  # of candidates by the metric `centred` of `fast`
_MARGIN = 0.05  # below the threshold: candidates for runs with a lower one


# Which of several near-duplicates is kept.
Keep = Literal["first", "longest", "shortest"]


@dataclass(frozen=True)
class Options:
    """How to find duplicates, and which of them to keep. None is a default."""

    model: str = "fast"  # finds candidates
    rescore: str | None = None  # scores them again
    metric: Metric | None = None  # of the model whose scores decide
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
    rescoring = options.rescore is not None
    finder = _open(options.model, settings, device, None if rescoring else options.metric)
    judge = finder
    if options.rescore is not None:
        judge = _open(options.rescore, settings, device, options.metric)
    threshold = _threshold(options, judge)
    floor = options.floor
    if floor is None:
        default = _THRESHOLDS.get((finder.name, finder.scorer.metric), threshold)
        floor = _RESCORING_FLOOR if rescoring else min(threshold, default) - _MARGIN
    if not floor <= 1:
        raise LatteMixError(f"floor is {floor:g}: scores are at most 1.")
    if not rescoring and threshold < floor:
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
        rescorer=judge.scorer if rescoring else None,
    )
    return Resolved(task, comparison, threshold)


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


def _threshold(options: Options, judge: _Opened) -> float:
    """Return the smallest score of duplicates."""
    metric = judge.scorer.metric
    given = options.threshold
    if given is None and options.threshold_on == "score":
        given = _THRESHOLDS.get((judge.name, metric))
        if given is None:
            raise LatteMixError(
                f"{judge.name} has no default threshold for {metric}: set threshold."
            )
    threshold = score_threshold(given, options.threshold_on, judge.calibration, metric)
    assert threshold is not None
    if not -1 <= threshold <= 1:
        raise LatteMixError(f"threshold is {threshold:g}: scores of {metric} are from -1 to 1.")
    return threshold
