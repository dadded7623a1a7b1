"""The float16 graph: its operators, and its arithmetic on a GPU, emulated on the CPU."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from numpy.typing import NDArray
from onnxruntime.transformers.optimizer import optimize_model
from transformers import AutoModel

from lattemix.build.assemble import build_precision
from lattemix.build.backbones import Checkpoint
from lattemix.build.distill import open_origin
from lattemix.build.head import Head
from lattemix.build.parity import _all_pairs, _spearman
from lattemix.encoder import batches
from lattemix.tokenization import Tokenizer
from model_store import Store
from model_store.store import HEADS, default_root
from tests.lattemix.build.cuda_arithmetic import CudaArithmetic
from tests.tiny import LAYERS, SENTENCES

Mixtures = NDArray[np.float32]
FUSED = ("Attention", "BiasGelu", "EmbedLayerNormalization", "MatMul", "SkipLayerNormalization")
TEXTS = [
    *SENTENCES,
    "a",
    "?",
    "the the the the the the",
    "dog " * 600,  # more than any model reads
    "\U0001f600 \u4f60\u597d",
    "\U0001f600" * 400,
    "1 " * 500,
    "!" * 700,
    "zzzzqx " * 50,
    "https://example.org/" + "a" * 300,
    *("the quick brown fox jumps over the lazy dog " * count for count in (1, 3, 9, 27)),
]


def feeds_of(tokenizer: Tokenizer) -> list[dict[str, NDArray]]:
    """The texts in batches of similar length, padded as for a GPU."""
    tokens = [text.ids for text in tokenizer(TEXTS, "right")]
    feeds = []
    for batch in batches([len(ids) for ids in tokens], 512):
        length = -(-max(len(tokens[i]) for i in batch) // 8) * 8
        lengths = np.array([len(tokens[i]) for i in batch])
        mask = (np.arange(length) < lengths[:, None]).astype(np.int64)  # [B, S]
        ids = np.zeros_like(mask)
        ids[mask == 1] = np.concatenate([tokens[i] for i in batch])
        pool = (mask / lengths[:, None]).astype(np.float32)[:, None]  # [B, 1, S]
        feeds.append({"input_ids": ids, "attention_mask": mask, "pool": pool})
    return feeds


def compare(checkpoint: Checkpoint, head: Head, half_attention: bool) -> tuple[float, float, float]:
    """Return the largest difference to float32, the rank agreement and the largest activation."""
    feeds = feeds_of(Tokenizer(checkpoint.tokenizer, head.spec.max_tokens))
    reference = build_precision(checkpoint, head, "fp32").SerializeToString()
    session = ort.InferenceSession(reference, providers=["CPUExecutionProvider"])
    model = build_precision(checkpoint, head, "fp16")
    emulation = CudaArithmetic(model, half_attention=half_attention)
    expected: Mixtures = np.concatenate([session.run(None, batch)[0] for batch in feeds])
    mixtures: Mixtures = np.concatenate([emulation.run(batch) for batch in feeds])
    agreement = _spearman(_all_pairs(mixtures), _all_pairs(expected))
    return float(np.abs(mixtures - expected).max()), agreement, emulation.largest


@pytest.mark.parametrize("half_attention", [False, True])
def test_half_precision_ranks_like_float32(
    checkpoint: Checkpoint, head: Head, half_attention: bool
) -> None:
    difference, agreement, largest = compare(checkpoint, head, half_attention)
    assert difference < 0.005
    assert agreement > 0.999
    assert 1 < largest < 100


@pytest.mark.skipif(
    not Store(default_root()).precisions("default"), reason="`lattemix build` was not run"
)
@pytest.mark.parametrize("half_attention", [False, True])
def test_default_in_half_precision_ranks_like_float32(half_attention: bool) -> None:
    head = Head.load(HEADS / "default")
    with open_origin(head.spec.backbone, None, lambda message: None) as checkpoint:
        difference, agreement, largest = compare(checkpoint, head, half_attention)
    assert difference < 0.005
    assert agreement > 0.999
    assert largest < np.finfo(np.float16).max / 100


def test_emulation_finds_an_overflow(checkpoint: Checkpoint, head: Head) -> None:
    model = build_precision(checkpoint, head, "fp16")
    (weight,) = (
        tensor
        for tensor in model.graph.initializer
        if tensor.name == "encoder.layer.1.intermediate.dense.weight"
    )
    large = onnx.numpy_helper.to_array(weight) * np.float16(60_000)
    weight.CopyFrom(onnx.numpy_helper.from_array(large, weight.name))
    with pytest.raises(OverflowError, match="MatMul"):
        CudaArithmetic(model).run(feeds_of(Tokenizer(checkpoint.tokenizer, 16))[0])


def test_a_cpu_session_computes_products_in_float32(
    checkpoint: Checkpoint, head: Head, tmp_path: Path
) -> None:
    """Hence the emulation. SkipLayerNormalization alone takes float16 there."""
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    model = build_precision(checkpoint, head, "fp16").SerializeToString()
    ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    graph = onnx.load(tmp_path / "optimized.onnx").graph
    kinds = {tensor.name: tensor.data_type for tensor in graph.initializer}
    half = {
        node.op_type
        for node in graph.node
        if any(kinds.get(name) == onnx.TensorProto.FLOAT16 for name in node.input)
    }
    assert half == {"SkipLayerNormalization"}


class HiddenStates(torch.nn.Module):
    """A transformer with two inputs and one output."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the last hidden states: [B, S] -> [B, S, H]."""
        states: torch.Tensor = self.model(input_ids=ids, attention_mask=mask)[0]
        return states


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore:Exporting aten::index", "ignore:Converting a tensor"
)
def test_has_the_operators_that_onnxruntimes_optimiser_makes(
    checkpoint: Checkpoint, head: Head, tmp_path: Path
) -> None:
    backbone = AutoModel.from_pretrained(
        checkpoint.directory, add_pooling_layer=False, attn_implementation="eager"
    )
    path = tmp_path / "bert.onnx"
    inputs = (torch.ones(2, 8, dtype=torch.long), torch.ones(2, 8, dtype=torch.long))
    names = ["input_ids", "attention_mask"]
    axes = {name: {0: "B", 1: "S"} for name in names}
    torch.onnx.export(
        HiddenStates(backbone),
        inputs,
        path,
        input_names=names,
        dynamic_axes=axes,
        opset_version=17,
        dynamo=False,
    )
    width, heads = backbone.config.hidden_size, backbone.config.num_attention_heads
    optimised = optimize_model(
        str(path), "bert", num_heads=heads, hidden_size=width, opt_level=0, use_gpu=True
    )
    optimised.convert_float_to_float16()
    expected = Counter(node.op_type for node in optimised.model.graph.node)
    assert expected["SkipLayerNormalization"] == 2 * LAYERS
    ours = Counter(node.op_type for node in build_precision(checkpoint, head, "fp16").graph.node)
    ours["MatMul"] -= 2  # the head's and the pool's
    assert {kind: ours[kind] for kind in FUSED} == {kind: expected[kind] for kind in FUSED}
