"""Evaluations and calibrations as text for the terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from lattemix.labelled.agreement import Agreement
from lattemix.labelled.evaluate import Evaluation
from model_store.calibration import Kind, Method

if TYPE_CHECKING:
    from lattemix.labelled.calibrate import CalibrationReport  # needs scipy

Row = Sequence[str]
_METHODS = get_args(Method)


def evaluation_text(evaluation: Evaluation) -> str:
    """Return a table of models and metrics, and the errors of their calibrations."""
    rows: list[Row] = [["model", "metric", *_measures(evaluation.kind), "sentences/s"]]
    notes = ["* recommended by the model; [95 % interval]"]
    for model in evaluation.models:
        for metric, measured in model.metrics.items():
            recommended = metric == model.recommended_metric
            name = f"{metric}*" if recommended else metric
            per_second = model.sentences_per_second if recommended else None
            speed = "" if per_second is None else f"{per_second:,.0f}"
            rows.append([model.model, name, *_values(measured, evaluation.kind), speed])
        if check := model.calibration:
            error = f"expected calibration error {check.error:.3f}"
            notes.append(f"{check.kind} of {model.model}: {error}")
    return "\n".join([_aligned(rows), *notes])


def calibration_text(report: "CalibrationReport") -> str:
    """Return tables of metrics, held-out predictions and thresholds."""
    calibration, held_out = report.calibration, report.calibration.held_out
    chosen = (
        f"Chosen: {calibration.metric}, {calibration.method}. Held out: expected calibration error "
        f"{held_out['calibration_error']:.3f}, Brier score {held_out['brier']:.4f}, cross-entropy "
        f"{held_out['log_loss']:.4f} (without a model {report.base_loss:.4f})."
    )
    if held_out["log_loss"] >= report.base_loss:
        chosen += "\nThe scores predict these labels no better than their mean does."
    parts = [_metric_table(report), chosen, _bin_table(report)]
    if report.thresholds:
        parts.append(_threshold_table(report))
    if report.not_reached:
        goals = ", ".join(map(str, report.not_reached))
        parts.append(f"Not reached on these pairs: {goals}.")
    return "\n\n".join(parts)


def _metric_table(report: "CalibrationReport") -> str:
    kind = report.calibration.kind
    rows: list[Row] = [["metric", *_measures(kind), *(f"loss, {method}" for method in _METHODS)]]
    for metric, measured in report.metrics.items():
        losses = [f"{report.losses[metric][method]:.4f}" for method in _METHODS]
        rows.append([metric, *_values(measured, kind), *losses])
    return _aligned(rows)


def _bin_table(report: "CalibrationReport") -> str:
    low, high = report.calibration.scale
    rows: list[Row] = [[report.calibration.kind, "mean label", "pairs"]]
    for part in report.bins:
        numbers = (low + (high - low) * share for share in (part.predicted, part.observed))
        rows.append([*(f"{number:.3f}" for number in numbers), str(part.pairs)])
    return "Held-out predictions:\n" + _aligned(rows)


def _threshold_table(report: "CalibrationReport") -> str:
    held_out = ("precision, held out", "recall, held out")
    rows: list[Row] = [["goal", "threshold (score)", "probability", "pairs", *held_out]]
    for found in report.thresholds:
        probability = f"{report.calibration.apply(found.score.value):.3f}"
        numbers = (str(found.score), probability, str(found.pairs))
        rows.append([str(found.goal), *numbers, str(found.precision), str(found.recall)])
    return "Thresholds, with 95 % intervals:\n" + _aligned(rows)


def _measures(kind: Kind) -> Row:
    """Names of the measures that labels of this kind have."""
    return ("AUC", "average precision", "Spearman") if kind == "probability" else ("Spearman",)


def _values(measured: Agreement, kind: Kind) -> Row:
    if kind == "rating":
        return [str(measured.spearman)]
    return [str(measured.auc), str(measured.average_precision), str(measured.spearman)]


def _aligned(rows: Sequence[Row]) -> str:
    """Align the columns of a table by spaces; the first row is the header."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)
