"""Backbone and head as torch has them, exported by torch itself."""

import warnings
from pathlib import Path

import numpy as np
import torch

from lattemix.build.backbones import open_backbone
from lattemix.build.head import Head
from training.backbones import load
from training.backbones.transformer import Transformer


class Plain(torch.nn.Module):
    """A backbone and a head, with the signature of our graph."""

    def __init__(self, backbone: Transformer, head: Head) -> None:
        super().__init__()
        self.model, self.spec = backbone.model, head.spec
        ((weight, bias),) = head.encoder
        self.mean = torch.from_numpy(head.tensors["mean"])
        self.weight, self.bias = torch.from_numpy(weight), torch.from_numpy(bias)

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, pool: torch.Tensor
    ) -> torch.Tensor:
        """Pooled mixtures [B, G, L, C]."""
        x = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        x = torch.nn.functional.normalize(x - self.mean, dim=-1) * x.shape[-1] ** 0.5
        logits = torch.nn.functional.linear(x, self.weight, self.bias) / self.spec.temperature
        shape = (self.spec.latent_dims, self.spec.classes)
        each = logits.reshape(*x.shape[:-1], *shape).softmax(-1).flatten(-2)
        pooled: torch.Tensor = pool @ each
        return pooled.reshape(*pooled.shape[:-1], *shape)


def export(source: str, head_directory: Path, path: Path) -> None:
    """Write the graph that `torch.onnx.export` makes by itself."""
    head = Head.load(head_directory)
    with open_backbone(source) as checkpoint:
        backbone = load(checkpoint, head.spec.max_tokens)
    assert isinstance(backbone, Transformer), "torch exports transformers here, not word vectors"
    ids = np.ones((2, 8), np.int64)
    pool = np.full((2, 1, 8), 1 / 8, np.float32)
    example = {"input_ids": ids, "attention_mask": ids, "pool": pool}
    warnings.simplefilter("ignore")  # it has many, about its own code
    torch.onnx.export(
        Plain(backbone, head).eval(),
        tuple(torch.from_numpy(value) for value in example.values()),
        str(path),
        input_names=list(example),
        output_names=["mixture"],
        dynamic_axes={name: {0: "B", 1 if name != "pool" else 2: "S"} for name in example},
        opset_version=17,
        dynamo=False,
    )
