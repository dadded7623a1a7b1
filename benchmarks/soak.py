"""`make soak`: hours of mixed traffic in minutes, then thrice what the server can do; watched.

Requests of every kind and length come by chance at half of the capacity, which is measured first.
It fails if memory, open files or threads grow, if anything but 200 and 429 is answered, or if too
much makes anyone wait for long, or leaves anything behind.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks import texts
from benchmarks.load import REFUSED, Answers, post
from benchmarks.parts.overload import arrivals
from benchmarks.processes import Server
from benchmarks.stage import Stage, ask_similarity, embed, serve
from benchmarks.watch import Sample, Watch

RESULTS = Path(__file__).parent / "results"
CLIENTS, CAPACITY_TURNS = 16, 3  # that measure the capacity
LOAD, TOO_MUCH = 0.5, 3.0  # of it
PART_SECONDS = 20.0  # requests that are written down at once, and have a p99 of their own
OVERLOAD_SECONDS = 120.0
MOST_GROWTH = 0.05  # of the memory, from the second fifth of the time to the last
MOST_FILES, MOST_THREADS = 16, 2  # more, likewise
# Of the memory, that an overload leaves behind. The first leaves some 5 % in Python's own heap, of
# which so much was in use for once; those after it add nothing.
MOST_LEFT = 0.1
MOST_WAIT_SECONDS, RECOVERY_SECONDS = 10.0, 2.0
AFTER_SECONDS = 60.0  # memory is given back every 30
_LATELY = 20  # samples, one a second

Floats = NDArray[np.float64]


def _explain(drawn: list[str]) -> bytes:
    return post("/explain", {"pair": drawn})


def _rank(drawn: list[str]) -> bytes:
    return post("/rank", {"query": drawn[0], "candidates": drawn[1:]})


def _matrix(drawn: list[str]) -> bytes:
    return post("/matrix", {"inputs": drawn, "metric": "js", "top_k": 9})


# How many sentences, how often, and what is asked about them.
KINDS: list[tuple[int, float, Callable[[list[str]], bytes]]] = [
    (1, 0.6, embed),
    (2, 0.2, lambda pair: ask_similarity([pair])),
    (2, 0.06, _explain),
    (9, 0.08, _rank),
    (32, 0.045, embed),
    (64, 0.01, _matrix),
    (256, 0.005, embed),
]


def requests(name: str, count: int) -> Iterator[bytes]:
    """Of every kind, with sentences of 3 to 256 tokens."""
    chance = np.random.default_rng(texts.seed(name))
    for number, kind in enumerate(chance.choice(len(KINDS), count, p=[k[1] for k in KINDS])):
        size, _, ask = KINDS[kind]
        drawn = f"{name} {number}"
        yield ask(texts.write(texts.mixed(drawn, size, longest=256 if size < 9 else 60), drawn))


class Part(NamedTuple):
    """Some seconds of traffic."""

    seconds: float  # from the start until it ended
    p50: float  # milliseconds
    p99: float
    statuses: dict[int, int]


def part_of(answers: Answers, seconds: float) -> Part:
    """What became of it."""
    statuses = {200: int(answers.good.sum()), **answers.others()}
    return Part(seconds, answers.milliseconds(50), answers.milliseconds(99), statuses)


def grown(samples: Sequence[Sample]) -> list[str]:
    """What grew from the second fifth of the time, when all is warm, to the last; in words."""
    fifth = len(samples) // 5
    if not fifth:
        return ["It was not watched for long enough to say."]
    before, after = samples[fifth : 2 * fifth], samples[-fifth:]

    # The least of each: connections come and go, and what leaks never goes.
    def least(of: Sequence[Sample], what: str) -> float:
        return float(min(getattr(sample, what) for sample in of))

    found = []
    for what, most in (
        ("megabytes", MOST_GROWTH * least(before, "megabytes")),
        ("files", MOST_FILES),
        ("threads", MOST_THREADS),
    ):
        a, b = least(before, what), least(after, what)
        if b - a > most:
            found.append(f"{what} grew from {a:,.0f} to {b:,.0f}.")
    return found


def wrong(parts: Sequence[Part]) -> list[str]:
    """Answers that should not have been, in words."""
    found: dict[int, int] = {}
    for part in parts:
        for status, count in part.statuses.items():
            if status not in (200, REFUSED):
                found[status] = found.get(status, 0) + count
    return [f"{n:,} answers were {status} (0: connection lost)." for status, n in found.items()]


def _capacity(stage: Stage, server: Server) -> float:
    """Mixed requests a second that clients without a pause are answered, at its best.

    Other programs can only make it look slower, and what is then called too much would not be.
    """
    return max(
        stage.closed(server, list(requests(f"soak capacity {turn}", 1500)), CLIENTS).rate
        for turn in range(CAPACITY_TURNS)
    )


def _soak(stage: Stage, server: Server, rate: float, seconds: float, watch: Watch) -> list[Part]:
    parts: list[Part] = []
    while time.perf_counter() - watch.start < seconds:
        name = f"soak {len(parts)}"
        due = arrivals(name, rate, PART_SECONDS)
        answers = stage.arriving(server, list(requests(name, len(due))), due)
        parts.append(part_of(answers, time.perf_counter() - watch.start))
        _tell(f"  {parts[-1].seconds:6.0f} s: {watch.samples[-1]}, p99 {parts[-1].p99:.0f} ms")
    return parts


class Overload(NamedTuple):
    """What thrice too much did, and how it was afterwards."""

    part: Part
    slowest: float  # seconds that an accepted request took
    samples: Sequence[Sample]  # meanwhile
    before: float  # megabytes
    after: float
    later: Part  # the traffic from soon after it ended on

    def problems(self, usual: float) -> list[str]:
        """What should not have been, in words; `usual` is a p99 that was there before."""
        found = wrong([self.part, self.later])
        if not self.part.statuses.get(REFUSED):
            found.append("Nothing was refused: it was not too much.")
        if self.slowest > MOST_WAIT_SECONDS:
            found.append(f"An accepted request took {self.slowest:.1f} s.")
        found += [f"Meanwhile {problem}" for problem in grown(self.samples)]
        when = f"{RECOVERY_SECONDS:g} s after it was too much"
        if refused := self.later.statuses.get(REFUSED):
            found.append(f"Later than {when} {refused} were refused.")
        if self.later.p99 > usual:
            found.append(f"From {when} on the p99 was {self.later.p99:,.0f} ms, not {usual:,.0f}.")
        if self.after > (1 + MOST_LEFT) * self.before:
            found.append(f"It left {self.after:,.0f} MB where there were {self.before:,.0f}.")
        return found


def _overload(stage: Stage, server: Server, capacity: float, watch: Watch) -> Overload:
    much = arrivals("too much", TOO_MUCH * capacity, OVERLOAD_SECONDS)
    usual = OVERLOAD_SECONDS + arrivals("and after", LOAD * capacity, AFTER_SECONDS)
    due = np.concatenate([much, usual])
    sent = list(requests("overload", len(due)))
    start = len(watch.samples)
    answers = stage.arriving(server, sent, due)
    recovered = int(np.searchsorted(due, OVERLOAD_SECONDS + RECOVERY_SECONDS))
    first = _between(answers, slice(None, len(much)))
    later = _between(answers, slice(recovered, None))
    return Overload(
        part_of(first, OVERLOAD_SECONDS),
        float(first.seconds[first.good].max()),
        watch.samples[start : start + int(OVERLOAD_SECONDS)],
        _megabytes(watch.samples[:start]),
        _megabytes(watch.samples),
        part_of(later, AFTER_SECONDS),
    )


def _megabytes(samples: Sequence[Sample]) -> float:
    """Resident, lately."""
    return float(np.median([sample.megabytes for sample in samples[-_LATELY:]]))


def _between(answers: Answers, part: slice) -> Answers:
    """Some of them."""
    due, seconds, status = answers.due[part], answers.seconds[part], answers.status[part]
    return Answers(due, seconds, status, answers.elapsed, answers.cpu)


def draw(samples: Sequence[Sample], soaked: int, parts: Sequence[Part], file: Path) -> None:
    """Memory, files, threads and latency over time; so many of the samples before the overload."""
    from matplotlib import pyplot as plt

    from benchmarks.plots import DARK, LIGHT, ORANGE

    minutes = [sample.seconds / 60 for sample in samples]
    figure, axes = plt.subplots(4, 1, figsize=(7, 8), sharex=True, layout="constrained")
    for axis, what in zip(axes, ("megabytes", "files", "threads"), strict=False):
        axis.plot(minutes, [getattr(sample, what) for sample in samples], color=DARK, linewidth=1)
        axis.set_ylabel({"megabytes": "resident, MB", "files": "open files"}.get(what, what))
        axis.set_ylim(bottom=0)
        axis.axvline(minutes[soaked - 1], color=LIGHT, linestyle=":", linewidth=1)
    axes[0].set_title("Half of the capacity; from the dotted line on thrice, then half", fontsize=9)
    ends = [part.seconds / 60 for part in parts]
    for percentile, colour in (("p99", ORANGE), ("p50", LIGHT)):
        values = [getattr(part, percentile) for part in parts]
        axes[3].plot(ends, values, ".-", color=colour, label=percentile)
    axes[3].set(ylabel="latency, ms", xlabel="minutes", yscale="log")
    axes[3].legend(frameon=False)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=130)


def main(minutes: Annotated[float, typer.Option(help="Of mixed traffic.")] = 30) -> None:
    """Soak the int8 server, ask too much of it, and say what grew."""
    with Stage() as stage:
        server = serve("int8")
        try:
            capacity = _capacity(stage, server)
            _tell(f"Capacity: {capacity:,.0f} mixed requests a second")
            with Watch(server) as watch:
                parts = _soak(stage, server, LOAD * capacity, 60 * minutes, watch)
                soaked = len(watch.samples)
                overload = _overload(stage, server, capacity, watch)
        finally:
            server.close()
    draw(watch.samples, soaked, parts, RESULTS / "soak.png")
    _report(watch.samples[:soaked], parts, overload)
    usual = max(part.p99 for part in parts)
    problems = [*grown(watch.samples[:soaked]), *wrong(parts), *overload.problems(usual)]
    for problem in problems:
        _tell(f"Failed: {problem}")
    sys.exit(bool(problems))


def _report(samples: Sequence[Sample], parts: Sequence[Part], overload: Overload) -> None:
    fifth = max(1, len(samples) // 5)
    for what in ("megabytes", "files", "threads"):
        at = [
            np.median([getattr(s, what) for s in samples[i * fifth : (i + 1) * fifth]])
            for i in range(5)
        ]
        _tell(f"{what}, by fifths of the time: {', '.join(f'{value:,.0f}' for value in at)}")
    answered = sum(part.statuses.get(200, 0) for part in parts)
    refused = sum(part.statuses.get(REFUSED, 0) for part in parts)
    slow = np.percentile([part.p99 for part in parts], [0, 50, 100])
    _tell(f"{answered:,} answered, {refused:,} refused")
    _tell(f"p99 of {PART_SECONDS:g} s: {slow[1]:.0f} ms ({slow[0]:.0f} to {slow[2]:.0f})")
    part, later = overload.part, overload.later
    sizes = [sample.megabytes for sample in overload.samples]
    _tell(
        f"At {TOO_MUCH:g} times the capacity: {part.statuses}, p50 {part.p50:,.0f} ms, p99 "
        f"{part.p99:,.0f} ms, slowest {overload.slowest:.1f} s; {overload.before:,.0f} MB before, "
        f"{min(sizes):,.0f} to {max(sizes):,.0f} meanwhile, {overload.after:,.0f} after; from "
        f"{RECOVERY_SECONDS:g} s after it ended on {later.statuses}, p50 {later.p50:,.0f} ms, p99 "
        f"{later.p99:,.0f} ms"
    )


def _tell(message: str) -> None:
    print(message, flush=True)


if __name__ == "__main__":
    typer.run(main)
