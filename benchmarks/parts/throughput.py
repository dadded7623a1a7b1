"""Sentences per second, of as many as there are: bulk requests, mixed lengths, and pairs."""

from collections.abc import Callable
from functools import partial

from benchmarks import texts
from benchmarks.processes import Worker
from benchmarks.report import Table, beside, cell, contestants, middle, workloads
from benchmarks.rounds import Figures, Series, Turn, play
from benchmarks.stage import PRECISIONS, Plan, Service, Stage, ask_similarity, in_parts
from benchmarks.texts import Lengths

AT_ONCE, CLIENTS = 32, 8  # texts in a request; requests at a time
PAIR_CLIENTS = 32  # where a request is one pair
SGEMM = "sgemm"

Draw = Callable[[str], Lengths]


def run(plan: Plan, stage: Stage) -> Series:
    """Every contestant on bulk and on mixed lengths, and the servers on pairs; quickly, on bulk."""
    bulk: Draw = partial(texts.usual, count=plan.sentences())
    mixed: Draw = partial(texts.mixed, count=plan.sentences(57))  # tokens, on average
    series = play(_everyone("bulk", bulk, stage, not plan.quick), plan.rounds, plan.tell)
    if plan.quick:  # no aim is about the rest
        return series
    series |= play(_everyone("mixed", mixed, stage, True), plan.fewer(), plan.tell)
    for size, clients in ((1, PAIR_CLIENTS), (AT_ONCE, CLIENTS)):
        turns: dict[str, Turn] = {}
        for name, service in stage.services().items():
            turn = partial(_pairs, stage, plan.sentences(), size, clients, name, service)
            turns[f"pairs, {size} a request/{name}"] = turn
        series |= play(turns, plan.fewer(), plan.tell)
    return series


def tables(series: Series) -> list[Table]:
    """One for each workload."""
    return [_table(series, workload) for workload in workloads(series)]


def _everyone(workload: str, draw: Draw, stage: Stage, json: bool) -> dict[str, Turn]:
    """Those who are compared take turns one after the other, as the machine may change its pace."""
    turns: dict[str, Turn] = {SGEMM: partial(_limit, stage, workload, draw)}
    for name, worker in _in_process(stage).items():
        turns[name] = partial(_encode, stage, workload, draw, worker)
    for name, service in stage.services(json).items():
        turns[name] = partial(_ask, stage, workload, draw, name, service)
    return {f"{workload}/{name}": turns[name] for name in sorted(turns, key=_place)}


def _place(name: str) -> int:
    """When its turn is; those who are not named come last."""
    order = (SGEMM, "engine fp32", "server fp32", "infinity", "server int8", "engine int8")
    return order.index(name) if name in order else len(order)


def _in_process(stage: Stage) -> dict[str, Callable[[], Worker]]:
    """Who is called and not asked; each is started at its first turn."""
    return {
        **{f"engine {p}": partial(stage.engine, p) for p in PRECISIONS},
        "sentence-transformers": stage.sentence_transformers,
        "torch.onnx.export": stage.torch_export,
    }


def _encode(
    stage: Stage, workload: str, draw: Draw, worker: Callable[[], Worker], number: int
) -> Figures:
    """All texts in one call."""
    lengths = draw(f"{workload} {number}")
    seconds: float = worker()(texts.write(lengths, f"{workload} {number}"))
    return _figures(stage, lengths, seconds)


def _ask(
    stage: Stage, workload: str, draw: Draw, name: str, service: Service, number: int
) -> Figures:
    """The same texts in requests. A server that is asked twice gets other words the second time."""
    lengths = draw(f"{workload} {number}")
    words = f"{workload} {number}" + (" json" if name.endswith("json") else "")
    requests = [service.ask(part) for part in in_parts(texts.write(lengths, words), AT_ONCE)]
    answers = stage.closed(service.start(), requests, CLIENTS).check()
    cost = {"client cpu ms": answers.cpu / len(requests) * 1000}
    return {**_figures(stage, lengths, answers.elapsed), **cost}


def _limit(stage: Stage, workload: str, draw: Draw, number: int) -> Figures:
    """The products of the same sentences, in the batches that the engine makes of them."""
    tokens = draw(f"{workload} {number}") + texts.SPECIAL_TOKENS
    budget = stage.engine("fp32").call("token_budget")
    one, several = stage.products()(tokens.tolist(), budget)
    ways = {"a batch on all cores": one, "a batch on every core": several}
    return {"gflops": max(ways.values()), **ways}


def _pairs(
    stage: Stage, count: int, size: int, clients: int, name: str, service: Service, number: int
) -> Figures:
    """Similarities of pairs; infinity, which has none, is asked for both embeddings."""
    lengths = texts.usual(f"pairs {number}", count)
    pairs = in_parts(texts.write(lengths, f"pairs of {size} {number}"), 2)
    parts = [pairs[start : start + size] for start in range(0, len(pairs), size)]
    if name == "infinity":
        requests = [service.ask([text for pair in part for text in pair]) for part in parts]
    else:
        requests = [ask_similarity(part) for part in parts]
    answers = stage.closed(service.start(), requests, clients).check()
    return {
        "rate": len(pairs) / answers.elapsed,
        "p50 ms": answers.milliseconds(50),
        "client cpu ms": answers.cpu / len(requests) * 1000,
    }


def _figures(stage: Stage, lengths: Lengths, seconds: float) -> Figures:
    """Sentences per second, and the products in them, padding not counted."""
    work = stage.flops(texts.tokens_of(lengths))
    return {"rate": len(lengths) / seconds, "gflops": work / seconds / 1e9}


def _table(series: Series, workload: str) -> Table:
    pairs = workload.startswith("pairs")
    peer = f"{workload}/{'infinity' if pairs else 'sentence-transformers'}/rate"
    rows = []
    for who in contestants(series, workload, "rate"):
        key = f"{workload}/{who}"
        rows.append(
            [
                who,
                cell(series, f"{key}/rate"),
                beside(series, f"{key}/rate", peer),
                cell(series, f"{key}/gflops", ".1f"),
                middle(series, f"{key}/client cpu ms", ".2f"),
            ]
        )
    if f"{workload}/{SGEMM}/gflops" in series:
        rows.append([SGEMM, "", "", cell(series, f"{workload}/{SGEMM}/gflops", ".1f"), ""])
    columns = [
        "",
        "pairs/s" if pairs else "sentences/s",
        f"beside {peer.split('/')[1]}",
        "GFLOP/s of products",
        "client's CPU, ms a request",
    ]
    note = "" if pairs else "sgemm: the faster of a batch on all cores and a batch on every core."
    return Table(workload, columns, rows, note)
