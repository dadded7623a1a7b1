import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from transformers import ViTConfig, ViTModel

from lattemix.build.backbones import BackboneError, Checkpoint
from tests.tiny import PROBES, RECIPE, SENTENCES, token_vectors
from training.backbones import load
from training.backbones.transformer import Transformer


def test_reads_any_layer_and_rejects_others(checkpoint: Checkpoint) -> None:
    first, last = (load(checkpoint, 16, n).encode(["a dog runs"]).vectors for n in (0, None))
    assert first.shape == last.shape == (5, 16)
    assert not np.allclose(first, last)
    with pytest.raises(BackboneError, match="has 2 layers, so there is no layer 3"):
        load(checkpoint, 16, 3)
    with pytest.raises(BackboneError, match="has 2 layers, so there is no layer 3"):
        load(checkpoint, 16).at(3)


def test_encodes_in_order_whatever_the_lengths(checkpoint: Checkpoint) -> None:
    backbone = load(checkpoint, 16)
    together = backbone.encode(SENTENCES)
    for sentence, vectors in zip(SENTENCES, together, strict=True):
        np.testing.assert_allclose(backbone.encode([sentence]).vectors, vectors, atol=1e-5)


def test_never_runs_code_that_comes_with_a_backbone(backbone: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(backbone, tmp_path / "b"))
    (directory / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    config = json.loads((directory / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.X", "AutoModel": "evil.Y"}}
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(BackboneError, match="cannot be loaded"):
        Transformer(Checkpoint.read(directory), 16)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("config", "message"),
    [
        # Without `is_encoder_decoder`, which older files leave to the model type's default.
        ({"model_type": "t5"}, r"b is an encoder-decoder \(model_type 't5'\): .*bert, roberta"),
        ({"model_type": "clip"}, r"b is not a text encoder \(model_type 'clip'\): .*bert, rob"),
    ],
)
def test_rejects_unsupported_model_types_before_loading_weights(
    backbone: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, str],
    message: str,
) -> None:
    directory = Path(shutil.copytree(backbone, tmp_path / "b"))
    (directory / "config.json").write_text(json.dumps(config))
    loaded = "transformers.AutoModel.from_pretrained"
    monkeypatch.setattr(loaded, lambda *_, **__: pytest.fail("weights must not be loaded"))
    with pytest.raises(BackboneError, match=message):
        Transformer(Checkpoint.read(directory), 16)


def test_rejects_a_model_of_images(backbone: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(backbone, tmp_path / "b"))
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 32}
    ViTModel(ViTConfig(**sizes, num_hidden_layers=1, image_size=32)).save_pretrained(directory)
    with pytest.raises(BackboneError, match=r"b is not a text encoder \(model_type 'vit'\): "):
        Transformer(Checkpoint.read(directory), 16)


def test_rejects_damaged_weights(backbone: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(backbone, tmp_path / "b"))
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(BackboneError, match="b cannot be loaded"):
        Transformer(Checkpoint.read(directory), 16)


def test_encodes_a_line_without_words_as_special_tokens(checkpoint: Checkpoint) -> None:
    # A tokenizer may find nothing in a line that is not blank; its special tokens remain.
    assert load(checkpoint, 16).encode(["a dog", " "]).lengths.tolist() == [4, 2]


def test_agrees_with_the_numpy_bert_of_the_tests(checkpoint: Checkpoint) -> None:
    expected = token_vectors(checkpoint, PROBES)
    encoded = load(checkpoint, RECIPE.max_tokens).encode(PROBES)
    np.testing.assert_array_equal(encoded.ids, expected.ids)
    np.testing.assert_allclose(encoded.vectors, expected.vectors, atol=1e-5)
