from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file
from transformers import AutoModel, BertConfig, BertModel

from lattemix.build.backbones import open_backbone
from training.backbones.transformer import Transformer
from training.paper.carriers import encoders

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "two", "dogs", "run"]
CONFIG = encoders.BERT_TINY | {
    "hidden_size": 8,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
    "vocab_size": len(TOKENS),
}


def google_name(name: str) -> str:
    """The name of Hugging Face's weight in Google's checkpoints."""
    name = name.replace("layer.", "layer_").replace("embeddings.weight", "embeddings")
    name = name.replace("LayerNorm.weight", "LayerNorm.gamma")
    name = name.replace("LayerNorm.bias", "LayerNorm.beta").replace(".weight", ".kernel")
    return "bert/" + name.replace(".", "/")


@pytest.fixture
def model() -> BertModel:
    torch.manual_seed(0)
    return BertModel(BertConfig(**CONFIG)).eval()


def test_tensorflow_checkpoint_gives_the_same_vectors(
    model: BertModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables: dict[str, Any] = {"dense/kernel": np.ones((8, 1), np.float32)}  # the task head
    for name, value in model.state_dict().items():
        renamed = google_name(name)
        variables[renamed] = value.T.numpy() if renamed.endswith("kernel") else value.numpy()
    monkeypatch.setattr(encoders, "read_variables", lambda prefix: variables)
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS))
    prefix = tmp_path / "variables" / "variables"

    encoders.convert_tensorflow(prefix, CONFIG, tmp_path / "out")

    _, report = AutoModel.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    expected = model(ids, output_hidden_states=True).hidden_states
    with open_backbone(str(tmp_path / "out")) as checkpoint:
        backbone = Transformer(checkpoint, 16)
        for layer, vectors in enumerate(backbone.encode_layers(["Two dogs RUN"], [0, 1, 2])):
            assert vectors.ids.tolist() == ids[0].tolist()
            actual = vectors.vectors
            np.testing.assert_allclose(actual, expected[layer][0].detach(), atol=1e-5)


def test_quantized_graph_keeps_only_the_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = {name: np.ones(2, np.float32) for name in ("bert.a.weight", "classifier.weight")}
    monkeypatch.setattr(encoders, "read_weights", lambda path: weights)
    (tmp_path / "vocab.txt").write_text("\n".join(TOKENS))
    tokenizer = encoders.BertWordPieceTokenizer(str(tmp_path / "vocab.txt"))
    tokenizer.enable_truncation(3)
    tokenizer.save(str(tmp_path / "tokenizer.json"))

    encoders.convert_quantized(tmp_path / "model.onnx", CONFIG, tmp_path / "out")

    assert set(load_file(tmp_path / "out" / "model.safetensors")) == {"a.weight"}
    with open_backbone(str(tmp_path / "out")) as checkpoint:
        written = encoders.tokenizers.Tokenizer.from_file(str(checkpoint.tokenizer))
        assert len(written.encode("two dogs run").ids) == 5
