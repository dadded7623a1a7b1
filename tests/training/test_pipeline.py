import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from transformers import ViTConfig, ViTModel

from lattemix.build.backbones import BackboneError, Checkpoint
from lattemix.build.families import ExportError
from lattemix.build.head import Head, HeadError, normalise
from lattemix.build.network import build_model
from tests.conftest import SENTENCES
from training.backbones import Backbone, load
from training.backbones.transformer import Transformer
from training.cache import VectorCache
from training.device import Workers
from training.pipeline import Encoded, make_head
from training.recipe import Recipe


def test_the_same_seed_gives_the_same_head(
    encoded: Encoded, recipe: Recipe, tmp_path: Path
) -> None:
    for name, seed in [("a", 0), ("b", 0), ("c", 1)]:
        chosen = recipe.model_copy(update={"seed": seed})
        make_head(encoded, chosen, "x", progress=False).save(tmp_path / name)
    a, b, c = ((tmp_path / name / "head.safetensors").read_bytes() for name in "abc")
    assert a == b
    assert a != c


def test_a_head_reads_back_as_it_was_measured(
    head: Head, encoded: Encoded, head_directory: Path
) -> None:
    # The encoder is stored in half precision; the probes were measured after that rounding.
    probes = head.mixtures(encoded.backbone.encode(head.spec.probes))
    np.testing.assert_allclose(probes, head.tensors["probes"], atol=1e-7)
    assert (head_directory / "head.safetensors").stat().st_mode & 0o044


def test_the_centre_is_the_mean_root_mixture(head: Head, encoded: Encoded) -> None:
    roots = np.sqrt(head.mixtures(encoded.backbone.encode(SENTENCES)))
    np.testing.assert_allclose(head.tensors["centre"], roots.mean(axis=0), atol=1e-3)


def test_a_mixture_is_the_mean_of_its_tokens_distributions(head: Head, encoded: Encoded) -> None:
    tokens = encoded.backbone.encode(SENTENCES)
    for mixture, vectors in zip(head.mixtures(tokens), tokens, strict=True):
        np.testing.assert_allclose(mixture, head.distributions(vectors).mean(axis=0), atol=1e-6)


def test_a_layer_can_be_chosen_and_a_wrong_one_is_named(checkpoint: Checkpoint) -> None:
    first, last = (load(checkpoint, 16, n).encode(["a dog runs"]).vectors for n in (0, None))
    assert first.shape == last.shape == (5, 16)
    assert not np.allclose(first, last)
    with pytest.raises(BackboneError, match="has 2 layers, so layer 3 is none of them"):
        load(checkpoint, 16, 3)


def test_sentences_come_back_in_their_order_whatever_their_length(checkpoint: Checkpoint) -> None:
    backbone = load(checkpoint, 16)
    together = backbone.encode(SENTENCES)
    for sentence, vectors in zip(SENTENCES, together, strict=True):
        np.testing.assert_allclose(backbone.encode([sentence]).vectors, vectors, atol=1e-5)


def test_normalisation() -> None:
    vectors = np.array([[1.0, 2.0], [3.0, 2.0], [2.0, 2.0]], np.float32)
    mean = np.array([2.0, 2.0], np.float32)
    assert normalise(vectors, mean, "none") is vectors
    np.testing.assert_array_equal(normalise(vectors, mean, "centre"), vectors - mean)
    equal = normalise(vectors, mean, "centre-equal-norm")
    np.testing.assert_allclose(np.linalg.norm(equal, axis=1), [np.sqrt(2), np.sqrt(2), 0])
    assert np.isfinite(equal).all()


@pytest.mark.parametrize(("model", "outputs"), [("normal", 8), ("autoencoder", 4)])
def test_the_baselines_are_heads_that_cannot_be_served(
    encoded: Encoded,
    checkpoint: Checkpoint,
    recipe: Recipe,
    tmp_path: Path,
    model: str,
    outputs: int,
) -> None:
    chosen = recipe.model_copy(update={"model": model})
    make_head(encoded, chosen, "x", progress=False).save(tmp_path)
    head = Head.load(tmp_path)
    assert head.encoder[0][0].shape == (outputs, 16)
    with pytest.raises(ExportError, match=f"of the {model} model, a baseline"):
        build_model(checkpoint, head)


def test_a_head_whose_kind_and_width_disagree(head_directory: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(head_directory, tmp_path / "head"))
    spec = json.loads((directory / "head.json").read_text()) | {"model": "normal"}
    (directory / "head.json").write_text(json.dumps(spec))
    with pytest.raises(HeadError, match="do not map 16 to 8 values"):
        Head.load(directory)


def test_code_that_comes_with_a_backbone_is_never_run(backbone: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(backbone, tmp_path / "b"))
    (directory / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    config = json.loads((directory / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.X", "AutoModel": "evil.Y"}}
    (directory / "config.json").write_text(json.dumps(config))
    with pytest.raises(BackboneError, match="cannot be loaded"):
        Transformer(Checkpoint.read(directory), 16)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("config", "says"),
    [
        # Without `is_encoder_decoder`, which older files leave to the model type's default.
        ({"model_type": "t5"}, r"b is an encoder-decoder \(model_type 't5'\): .*bert, roberta"),
        ({"model_type": "clip"}, r"b is not a text encoder \(model_type 'clip'\): .*bert, rob"),
    ],
)
def test_an_unsupported_model_type_is_refused_before_loading_weights(
    backbone: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, str],
    says: str,
) -> None:
    directory = Path(shutil.copytree(backbone, tmp_path / "b"))
    (directory / "config.json").write_text(json.dumps(config))
    loaded = "transformers.AutoModel.from_pretrained"
    monkeypatch.setattr(loaded, lambda *_, **__: pytest.fail("weights must not be loaded"))
    with pytest.raises(BackboneError, match=says):
        Transformer(Checkpoint.read(directory), 16)


def test_a_model_that_does_not_read_tokens_is_refused(backbone: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(backbone, tmp_path / "b"))
    sizes = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 32}
    ViTModel(ViTConfig(**sizes, num_hidden_layers=1, image_size=32)).save_pretrained(directory)
    with pytest.raises(BackboneError, match=r"b is not a text encoder \(model_type 'vit'\): "):
        Transformer(Checkpoint.read(directory), 16)


def test_damaged_weights_are_a_sentence(backbone: Path, tmp_path: Path) -> None:
    directory = Path(shutil.copytree(backbone, tmp_path / "b"))
    weights = directory / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(BackboneError, match="b cannot be loaded"):
        Transformer(Checkpoint.read(directory), 16)


def test_a_line_without_words_does_not_stop_training(checkpoint: Checkpoint) -> None:
    # A tokenizer may find nothing in a line that is not blank; its special tokens remain.
    assert load(checkpoint, 16).encode(["a dog", " "]).lengths.tolist() == [4, 2]


class Recording(VectorCache):
    """A cache that tells which shards were encoded through it."""

    def __init__(self, directory: Path, gigabytes: float) -> None:
        super().__init__(directory, gigabytes)
        self.asked: list[list[str]] = []

    def encode(self, backbone: Backbone, sentences: list[str], *rest: object):
        self.asked.append(sentences)
        return super().encode(backbone, sentences, *rest)


@pytest.mark.parametrize(("gigabytes", "encoded_ahead"), [(1, 2), (5e-7, 1)])
def test_workers_share_what_the_cache_can_hold(
    encoded: Encoded,
    recipe: Recipe,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gigabytes: float,
    encoded_ahead: int,
) -> None:
    monkeypatch.setattr(Encoded, "needed", lambda self, recipe: [0, 1, 2, 3])
    monkeypatch.setattr(type(encoded.corpus), "shard", lambda self, i: [SENTENCES[i]])
    monkeypatch.setattr(Workers, "wait", lambda self: None)
    seen = []
    for rank in (0, 1):
        cache = Recording(tmp_path / str(rank), gigabytes)
        shared = Encoded(encoded.backbone, encoded.corpus, cache)
        shared.ahead(recipe, Workers(rank, 2), progress=False)
        assert len(cache.asked) == encoded_ahead
        seen += cache.asked
    assert len({tuple(sentences) for sentences in seen}) == 2 * encoded_ahead
