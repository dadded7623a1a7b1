"""What we want to reach, as ratios within a round, and whether a run reached it."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from benchmarks.report import Table
from benchmarks.rounds import Series, Spread, ratios

Results = Mapping[str, Series]  # by part


class Aim(NamedTuple):
    """A series over another of the same part, or alone, and how large or small it should be."""

    name: str
    part: str
    top: str
    bottom: str | None
    sense: Literal["≥", "≤"]
    aim: float

    def values(self, results: Results) -> list[float]:
        """In every round; none where it was not measured."""
        series = results.get(self.part, {})
        top = series.get(self.top, [])
        if self.bottom is None:
            return top
        bottom = series.get(self.bottom, [])
        return ratios(top, bottom) if len(top) == len(bottom) else []

    def reached(self, value: float) -> bool:
        """Whether this is enough."""
        return value >= self.aim if self.sense == "≥" else value <= self.aim

    def better(self, new: float, old: float) -> bool:
        """Whether the first is nearer to the aim, or farther beyond it."""
        return new > old if self.sense == "≥" else new < old


def _both(aim: Aim) -> list[Aim]:
    """The same for either precision, which `P` stands for."""
    return [
        aim._replace(
            name=aim.name.replace("P", precision),
            top=aim.top.replace("P", precision),
            bottom=aim.bottom and aim.bottom.replace("P", precision),
        )
        for precision in ("fp32", "int8")
    ]


def _bulk(name: str, top: str, bottom: str, aim: float, measure: str = "rate") -> Aim:
    top, bottom = (f"bulk/{who}/{measure}" for who in (top, bottom))
    return Aim(name, "throughput", top, bottom, "≥", aim)


AIMS: Sequence[Aim] = (
    _bulk("engine fp32 ÷ sgemm", "engine fp32", "sgemm", 0.9, "gflops"),
    *_both(_bulk("server bulk ÷ engine, P", "server P", "engine P", 0.92)),
    _bulk("server fp32 ÷ infinity, bulk", "server fp32", "infinity", 2.3),
    _bulk("server int8 ÷ infinity, bulk", "server int8", "infinity", 3.7),
    _bulk("server fp32 ÷ sentence-transformers", "server fp32", "sentence-transformers", 1.4),
    _bulk("server int8 ÷ sentence-transformers", "server int8", "sentence-transformers", 2.2),
    *_both(
        Aim(
            "lone client's p50 ÷ bare call's, P",
            "latency",
            "1 client/server P/p50 ms",
            "1 client/bare call, P/p50 ms",
            "≤",
            1.25,
        )
    ),
    *_both(
        Aim(
            "64 single-sentence clients ÷ bulk, P",
            "latency",
            "64 clients/server P/rate",
            "bulk/server P/rate",
            "≥",
            0.85,
        )
    ),
    Aim(
        "goodput at 120 % ÷ capacity",
        "load",
        "120 %/server int8/goodput",
        "capacity/server int8/rate",
        "≥",
        0.95,
    ),
    Aim("neither 200 nor 429 at 120 %", "load", "120 %/server int8/errors", None, "≤", 0),
    Aim(
        "p99 at 80 % ÷ p50 at 10 %",
        "load",
        "80 %/server int8/p99 ms",
        "10 %/server int8/p50 ms",
        "≤",
        6,
    ),
    *_both(
        Aim(
            "repeated ÷ fresh, P",
            "cache",
            "repeated/server P/rate",
            "fresh/server P/rate",
            "≥",
            20,
        )
    ),
    Aim(
        "all pairs by js, naive ÷ ours",
        "kernels",
        "all pairs, js/naive/ms",
        "all pairs, js/ours/ms",
        "≥",
        20,
    ),
    Aim("all pairs by js, peak MB", "kernels", "all pairs, js/ours/peak MB", None, "≤", 1000),
    Aim("int8 server when ready, MB", "memory", "server int8/idle/MB", None, "≤", 300),
    Aim("int8 server after the requests, MB", "memory", "server int8/after/MB", None, "≤", 300),
    Aim("its growth, %", "memory", "server int8/after/growth %", None, "≤", 5),
    Aim("start to ready, s", "memory", "server int8/start/s", None, "≤", 1.5),
)


def table(results: Results) -> Table:
    """What was reached of what was measured."""
    rows = []
    for aim in AIMS:
        if values := aim.values(results):
            spread = Spread.of(values)
            form = ",.2f" if spread.high < 100 else ",.0f"
            reached = "yes" if aim.reached(spread.median) else "no"
            rows.append([aim.name, f"{aim.sense} {aim.aim:g}", f"{spread:{form}}", reached])
    return Table("Aims", ["", "aim", "median (lowest to highest) of rounds", "reached"], rows)
