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
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from lattemix.build.assemble import assemble
from lattemix.build.backbones import BackboneError, Checkpoint
from lattemix.build.families import FAMILIES, distance_bias
from lattemix.build.head import Head
from lattemix.encoder import Encoder
from model_store import Precision, Store
from tests.conftest import SENTENCES
from training.backbones import load
from training.cache import VectorCache
from training.corpus import prepare
from training.encoding import EncodedCorpus
from training.job import make_head
from training.recipe import Recipe

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
PRECISIONS: tuple[Precision, ...] = ("fp32", "fp16", "int8")
# Odd inputs: one word, the most tokens, a repeated one, unknown ones, the padding's own name.
ODD = ["man", "dog " * 60, "the the the the", "\U0001f600 \u4f60\u597d", "a <pad> dog <pad> runs"]


def make(family: str, directory: Path) -> Path:
    """A tiny random encoder of a family, whose weights are large enough to matter."""
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
    return directory


@pytest.mark.parametrize("layer", [1, None])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_gives_what_torch_gives(
    family: str, layer: int | None, recipe: Recipe, cache: VectorCache, tmp_path: Path
) -> None:
    directory = make(family, tmp_path / family)
    checkpoint = Checkpoint.read(directory)
    settings = recipe.model_copy(update={"max_tokens": 32})
    backbone = load(checkpoint, 32, layer)
    corpus = prepare(SENTENCES, tmp_path / "corpus")
    head = make_head(EncodedCorpus(backbone, corpus, cache), settings, "x", progress=False)
    head.save(tmp_path / "head")
    artifact, half, small = assemble(
        tmp_path / "head", Store(tmp_path), "m", str(directory), precisions=PRECISIONS
    )
    onnx.checker.check_model(onnx.load(artifact.model))
    texts = [*SENTENCES, *ODD]
    expected = Head.load(tmp_path / "head").mixtures(backbone.encode(texts, exact=True))
    encoder = Encoder(artifact, provider="cpu", token_budget=64)
    np.testing.assert_allclose(encoder.encode(texts).mixtures, expected, atol=1e-5)
    # In another order, and each by itself: the padding differs, the answer does not.
    np.testing.assert_allclose(encoder.encode(texts[::-1]).mixtures[::-1], expected, atol=1e-5)
    for text, mixture in zip(texts, expected, strict=True):
        np.testing.assert_allclose(encoder.encode([text]).mixtures[0], mixture, atol=1e-5)
    for other, most in ((half, 0.01), (small, 0.2)):
        onnx.checker.check_model(onnx.load(other.model))
        encoder = Encoder(other, provider="cpu", token_budget=64)
        found = encoder.encode(texts).mixtures
        np.testing.assert_allclose(found, expected, atol=most)
        alone = np.concatenate([encoder.encode([text]).mixtures for text in texts])
        np.testing.assert_allclose(alone, found, atol=1e-4)


def test_mpnets_distances_are_torchs() -> None:
    table = np.random.default_rng(0).normal(size=(32, 12)).astype(np.float32)
    encoder = MPNetEncoder(MPNetConfig(num_hidden_layers=0))
    encoder.relative_attention_bias.weight.data = torch.from_numpy(table)
    expected = encoder.compute_position_bias(torch.zeros(1, 512, 1))[0].detach().numpy()
    np.testing.assert_array_equal(distance_bias(table, 512), expected)


def test_positions_that_are_counted_from_the_padding_leave_fewer(
    recipe: Recipe, tmp_path: Path
) -> None:
    checkpoint = Checkpoint.read(make("roberta", tmp_path / "roberta"))
    assert load(checkpoint, 38).max_tokens == 38
    with pytest.raises(BackboneError, match="max_tokens is 39, but roberta has 38 positions"):
        load(checkpoint, 39)


def test_weights_with_the_prefix_of_a_task_are_found(tmp_path: Path) -> None:
    for family in ("distilbert", "mpnet", "roberta"):
        checkpoint = Checkpoint.read(make(family, tmp_path / family))
        tensors = checkpoint.tensors()
        plain = FAMILIES[family](checkpoint.config, tensors)
        prefixed = {f"{family}.{name}": tensor for name, tensor in tensors.items()}
        assert FAMILIES[family](checkpoint.config, prefixed).weights.keys() == plain.weights.keys()
