"""Our graph beside torch's own export of the same model, and beside the machine's limit.

    python -m benchmarks.graph [BACKBONE HEAD]

Every contestant reads the same batches: sentences of similar length, as the engine makes them.
The limit is what numpy's matrix product (sgemm) takes for the products alone. Rounds alternate
so that a noisy machine is noisy for all, and ratios are taken within each round.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray

from app.cli import HEADS
from app.engine.encoder import batches
from app.engine.tokenization import Tokenizer
from benchmarks.throughput import sentences
from training.backbones import Checkpoint, load, open_backbone
from training.backbones.transformer import Transformer
from training.export.arithmetic import Arithmetic, Bytes
from training.export.build import build
from training.export.calibration import calibrate
from training.head import Head

ROUNDS = 5
TOKEN_BUDGET = 1024

Batch = dict[str, NDArray[np.generic]]


class Plain(torch.nn.Module):
    """A backbone and a head as torch has them."""

    def __init__(self, backbone: Transformer, head: Head) -> None:
        super().__init__()
        self.model, self.spec = backbone.model, head.spec
        ((weight, bias),) = head.encoder
        self.mean = torch.from_numpy(head.tensors["mean"])
        self.weight, self.bias = torch.from_numpy(weight), torch.from_numpy(bias)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, pool: torch.Tensor
    ) -> torch.Tensor:
        """The same signature as our graph's."""
        x = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        x = torch.nn.functional.normalize(x - self.mean, dim=-1) * x.shape[-1] ** 0.5
        logits = torch.nn.functional.linear(x, self.weight, self.bias) / self.spec.temperature
        shape = (self.spec.latent_dims, self.spec.classes)
        each = logits.unflatten(-1, shape).softmax(-1).flatten(-2)
        return (pool @ each).unflatten(-1, shape)


def make_batches(checkpoint: Checkpoint, head: Head, seed: int) -> Iterator[Batch]:
    """As the engine would."""
    tokens = Tokenizer(checkpoint.tokenizer, head.spec.max_tokens)(sentences(seed))
    for batch in batches([len(text.ids) for text in tokens], TOKEN_BUDGET):
        longest = max(len(tokens[i].ids) for i in batch)
        mask = np.array([[j < len(tokens[i].ids) for j in range(longest)] for i in batch])
        ids = np.array([tokens[i].ids + [0] * (longest - len(tokens[i].ids)) for i in batch])
        pool = (mask / mask.sum(axis=1, keepdims=True)).astype(np.float32)[:, None]
        yield {"input_ids": ids, "attention_mask": mask.astype(np.int64), "pool": pool}


def session(model: bytes | str) -> ort.InferenceSession:
    """With the settings our engine has."""
    options = ort.SessionOptions()
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def torch_export(backbone: Transformer, head: Head, example: Batch, path: Path) -> None:
    """What `torch.onnx.export` makes of it by itself."""
    names = list(example)
    dynamic = {name: {0: "B", 1 if name != "pool" else 2: "S"} for name in names}
    inputs = tuple(torch.from_numpy(value) for value in example.values())
    torch.onnx.export(
        Plain(backbone, head).eval(),
        inputs,
        str(path),
        input_names=names,
        output_names=["mixture"],
        dynamic_axes=dynamic,
        opset_version=17,
        dynamo=False,
    )


def products(head: Head, config: dict[str, int]) -> list[tuple[int, int]]:
    """The matrices [in, out] that every token is multiplied by."""
    width, inner = config["hidden_size"], config["intermediate_size"]
    layer = [(width, 3 * width), (width, width), (width, inner), (inner, width)]
    return layer * head.spec.backbone.layer + [(width, head.spec.latent_dims * head.spec.classes)]


def main() -> None:
    """Run the comparison and print it."""
    source, directory = sys.argv[1:] or ("all-MiniLM-L6-v2", HEADS / "default")
    head = Head.load(Path(directory))
    with open_backbone(str(source)) as checkpoint, tempfile.TemporaryDirectory() as temporary:
        backbone = load(checkpoint, head.spec.max_tokens)
        assert isinstance(backbone, Transformer)
        work = [[*make_batches(checkpoint, head, seed)] for seed in range(ROUNDS + 1)]
        plain = Path(temporary) / "plain.onnx"
        torch_export(backbone, head, work[0][0], plain)
        ranges = calibrate(checkpoint, head)
        sessions = {
            "ours, fp32": session(build(checkpoint, head, Arithmetic).SerializeToString()),
            "ours, int8": session(
                build(checkpoint, head, lambda graph: Bytes(graph, ranges)).SerializeToString()
            ),
            "torch.onnx.export": session(str(plain)),
        }
        weights = [np.ones(shape, np.float32) for shape in products(head, checkpoint.config)]

    def sgemm(batch: Batch) -> None:
        tokens = batch["input_ids"].size
        for matrix in weights:
            np.ones((tokens, matrix.shape[0]), np.float32) @ matrix

    contestants: dict[str, Callable[[Batch], object]] = {
        name: lambda batch, each=each: each.run(None, batch)  # type: ignore[misc]
        for name, each in sessions.items()
    }
    contestants["products alone (numpy)"] = sgemm
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for index, rounds in enumerate(work):
        for name, run in contestants.items():
            start = time.perf_counter()
            for batch in rounds:
                run(batch)
            if index:  # the first warms up
                seconds[name].append(time.perf_counter() - start)
    ours = seconds["ours, fp32"]
    print(f"{source}, {ROUNDS} rounds, speed beside ours in fp32: median (lowest to highest)")
    for name, taken in seconds.items():
        ratios = [mine / theirs for mine, theirs in zip(ours, taken, strict=True)]
        middle = statistics.median(ratios)
        print(f"{name:<24} {middle:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
