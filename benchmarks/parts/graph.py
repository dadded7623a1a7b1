"""Our graph beside torch's own export of the same model, and beside the machine's limit.

All in ONNX Runtime as it comes and on the same batches, for any backbone and head
(`--backbone`, `--head`).
"""

from functools import partial

from benchmarks import texts
from benchmarks.contestants import GRAPH_TOKENS
from benchmarks.processes import Worker
from benchmarks.report import Table, beside, cell, contestants
from benchmarks.rounds import Figures, Series, Turn, play
from benchmarks.stage import PRECISIONS, Plan, Stage, shapes
from lattemix.build.assemble import assemble
from lattemix.build.backbones import Checkpoint
from lattemix.build.head import Head
from model_store import Store

GRAPH = "graph"


def run(plan: Plan, stage: Stage) -> Series:
    """Build the graph in both precisions, and let all take turns."""
    backbone, head = plan.backbone, plan.head
    store = Store(stage.folder / "store")
    made = assemble(head, store, "graph", str(stage.backbone(backbone)), precisions=PRECISIONS)
    graphs = {
        f"ours, {artifact.manifest.precision}": stage.graph(backbone, head, artifact.model)
        for artifact in made
    }
    graphs["torch.onnx.export"] = stage.torch_export(backbone, head)
    matrices = shapes(Head.load(head), Checkpoint.read(stage.backbone(backbone)).config)
    limit = stage.products(matrices)
    flops = 2.0 * sum(rows * columns for rows, columns in matrices)
    count = plan.sentences()
    turns: dict[str, Turn] = {
        f"{GRAPH}/{name}": partial(_encode, each, count, flops) for name, each in graphs.items()
    }
    turns[f"{GRAPH}/sgemm"] = partial(_limit, limit, count)
    return play(turns, plan.rounds, plan.tell)


def _encode(graph: Worker, count: int, flops: float, number: int) -> Figures:
    lengths = texts.usual(f"graph {number}", count)
    seconds = graph(texts.write(lengths, f"graph {number}"))
    work = flops * texts.tokens_of(lengths)  # of the default backbone's tokens
    return {"rate": count / seconds, "gflops": work / seconds / 1e9}


def _limit(limit: Worker, count: int, number: int) -> Figures:
    tokens = texts.usual(f"graph {number}", count) + texts.SPECIAL_TOKENS
    return {"gflops": max(limit(tokens.tolist(), GRAPH_TOKENS))}


def tables(series: Series) -> list[Table]:
    """One."""
    rows = [
        [
            who,
            cell(series, f"{GRAPH}/{who}/rate"),
            cell(series, f"{GRAPH}/{who}/gflops", ".1f"),
            beside(series, f"{GRAPH}/{who}/gflops", f"{GRAPH}/ours, fp32/gflops"),
        ]
        for who in contestants(series, GRAPH, "gflops")
    ]
    columns = ["", "sentences/s", "GFLOP/s of products", "beside ours in fp32"]
    return [Table("Graphs in ONNX Runtime as it comes", columns, rows)]
