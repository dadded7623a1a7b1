"""The same 1,024 sentences again and again, against new ones; 32 in a request."""

from functools import partial

from benchmarks import texts
from benchmarks.parts.throughput import AT_ONCE, CLIENTS
from benchmarks.report import Table, beside, cell, middle
from benchmarks.rounds import Figures, Series, Turn, play
from benchmarks.stage import PRECISIONS, Plan, Stage, embed, in_parts
from model_store import Precision

COUNT = 1024
TIMES = 20  # that they are asked for in a turn


def run(plan: Plan, stage: Stage) -> Series:
    """Both precisions, remembered and new."""
    turns: dict[str, Turn] = {}
    for precision in PRECISIONS:
        turns[f"fresh/server {precision}"] = partial(_fresh, plan, stage, precision)
        turns[f"repeated/server {precision}"] = partial(_repeated, stage, precision)
    return play(turns, plan.rounds, plan.tell)


def tables(series: Series) -> list[Table]:
    """One."""
    rows = []
    for precision in PRECISIONS:
        fresh, again = (f"{how}/server {precision}" for how in ("fresh", "repeated"))
        rows.append(
            [
                f"server {precision}",
                cell(series, f"{fresh}/rate"),
                cell(series, f"{again}/rate"),
                beside(series, f"{again}/rate", f"{fresh}/rate", ".1f"),
                middle(series, f"{again}/client cpu ms", ".2f"),
            ]
        )
    columns = ["", "fresh, sentences/s", "repeated, sentences/s", "repeated ÷ fresh"]
    return [Table("Repeated sentences", [*columns, "client's CPU, ms a request"], rows)]


def _fresh(plan: Plan, stage: Stage, precision: Precision, number: int) -> Figures:
    lengths = texts.usual(f"fresh {number}", plan.sentences())
    return _asked(stage, precision, texts.write(lengths, f"fresh {number}"), 1)


def _repeated(stage: Stage, precision: Precision, number: int) -> Figures:
    """Asked for once before the clock starts."""
    drawn = texts.write(texts.usual("repeated", COUNT), "repeated")
    _asked(stage, precision, drawn, 1)
    return _asked(stage, precision, drawn, TIMES)


def _asked(stage: Stage, precision: Precision, drawn: list[str], times: int) -> Figures:
    requests = [embed(part) for part in in_parts(drawn, AT_ONCE)] * times
    answers = stage.closed(stage.server(precision), requests, CLIENTS).check()
    return {
        "rate": len(drawn) * times / answers.elapsed,
        "client cpu ms": answers.cpu / len(requests) * 1000,
    }
