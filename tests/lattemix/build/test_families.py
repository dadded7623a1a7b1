import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file
from transformers import MPNetConfig
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from lattemix.build.backbones import Checkpoint
from lattemix.build.families import FAMILIES, relative_position_bias
from lattemix.build.head import Head
from lattemix.build.network import build_model
from tests.lattemix.build.test_transformer import write_backbone


def test_mpnets_position_bias_equals_torchs() -> None:
    table = np.random.default_rng(0).normal(size=(32, 12)).astype(np.float32)
    encoder = MPNetEncoder(MPNetConfig(num_hidden_layers=0))
    encoder.relative_attention_bias.weight.data = torch.from_numpy(table)
    expected = encoder.compute_position_bias(torch.zeros(1, 512, 1))[0].detach().numpy()
    np.testing.assert_array_equal(relative_position_bias(table, 512), expected)


@pytest.mark.parametrize("family", ["distilbert", "mpnet", "roberta"])
def test_ignores_the_prefix_of_a_task_model(tmp_path: Path, family: str) -> None:
    checkpoint = write_backbone(family, tmp_path / family)
    tensors = checkpoint.tensors()
    plain = FAMILIES[family](checkpoint.config, tensors)
    prefixed = {f"{family}.{name}": tensor for name, tensor in tensors.items()}
    assert FAMILIES[family](checkpoint.config, prefixed).weights.keys() == plain.weights.keys()


def test_reads_the_names_of_old_bert_checkpoints(
    checkpoint: Checkpoint, head: Head, tmp_path: Path
) -> None:
    def old(name: str) -> str:
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        return "bert." + name.replace("LayerNorm.bias", "LayerNorm.beta")

    weights = load_file(checkpoint.directory / "model.safetensors")
    renamed = {old(name): tensor for name, tensor in weights.items()}
    save_file({**renamed, "cls.bias": np.zeros(3)}, tmp_path / "model.safetensors")
    renamed_checkpoint = dataclasses.replace(checkpoint, directory=tmp_path)
    model = build_model(renamed_checkpoint, head)
    assert model.SerializeToString() == build_model(checkpoint, head).SerializeToString()
