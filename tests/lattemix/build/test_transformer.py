"""Graphs of tiny random encoders of every family, compared with transformers."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import tokenizers
import torch
from tokenizers import models, pre_tokenizers, processors
from transformers import (
    AutoModel,
    BertConfig,
    CamembertConfig,
    DistilBertConfig,
    MPNetConfig,
    PreTrainedConfig,
    RobertaConfig,
    XLMRobertaConfig,
)

from lattemix.build.assemble import assemble
from lattemix.build.backbones import Checkpoint
from lattemix.build.families import FAMILIES
from lattemix.encoder import Encoder
from model_store import Precision, Store
from tests.tiny import SENTENCES, random_head
from training.backbones import load

SIZES = {
    "vocab_size": 64,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
}
CONFIGS: dict[str, PreTrainedConfig] = {
    "bert": BertConfig(**SIZES),
    "roberta": RobertaConfig(**SIZES, type_vocab_size=1),
    "xlm-roberta": XLMRobertaConfig(**SIZES, type_vocab_size=1),
    "camembert": CamembertConfig(**SIZES, type_vocab_size=1),
    "distilbert": DistilBertConfig(
        vocab_size=64, dim=24, n_layers=3, n_heads=4, hidden_dim=40, max_position_embeddings=40
    ),
    "mpnet": MPNetConfig(**SIZES),
}
TOLERANCES: dict[Precision, float] = {"fp32": 1e-5, "fp16": 0.01, "int8": 0.2}
# A single word, the maximum length, a repeated word, unknown words, and the padding token as text.
EDGE_CASES = ["man", "dog " * 60, "the the the the", "\U0001f600 \u4f60\u597d", "a <pad> dog <pad>"]


def write_backbone(family: str, directory: Path) -> Checkpoint:
    """Write a random encoder whose weights are large enough to matter."""
    words = sorted({word for sentence in SENTENCES for word in sentence.split()})
    vocabulary = {word: i for i, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *words])}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>"])
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    directory.mkdir()
    tokenizer.save(str(directory / "tokenizer.json"))
    torch.manual_seed(3)
    model = AutoModel.from_config(CONFIGS[family])
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.15)
    model.save_pretrained(directory)
    return Checkpoint.read(directory)


@pytest.mark.parametrize("family", FAMILIES)
def test_matches_torch_whatever_the_batch(family: str, tmp_path: Path) -> None:
    checkpoint = write_backbone(family, tmp_path / family)
    backbone = load(checkpoint, 32)
    head = random_head(checkpoint, backbone.encode, layer=3, max_tokens=32)
    head.save(tmp_path / "head")
    directory = str(checkpoint.directory)
    texts = [*SENTENCES, *EDGE_CASES]
    expected = head.mixtures(backbone.encode(texts, exact=True))
    artifacts = assemble(
        tmp_path / "head", Store(tmp_path), "m", directory, precisions=tuple(TOLERANCES)
    )
    for artifact in artifacts:
        onnx.checker.check_model(onnx.load(artifact.model))
        encoder = Encoder(artifact, provider="cpu", token_budget=64)
        mixtures = encoder.encode(texts).mixtures
        precision = artifact.manifest.precision
        np.testing.assert_allclose(mixtures, expected, atol=TOLERANCES[precision])
        # Alone, there is no padding.
        alone = np.concatenate([encoder.encode([text]).mixtures for text in texts])
        np.testing.assert_allclose(alone, mixtures, atol=1e-5 if precision == "fp32" else 1e-4)
