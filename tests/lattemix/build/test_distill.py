"""Tables distilled from the tiny BERT, compared with its numpy reference."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tokenizers
import torch
from tokenizers import models

from lattemix.build.assemble import assemble
from lattemix.build.backbones import BackboneError, Checkpoint, TokenVectors
from lattemix.build.distill import distill, open_origin
from lattemix.build.families import ExportError
from lattemix.build.head import Head
from lattemix.encoder import Encoder
from lattemix.errors import EmptyTextError
from model_store import Store
from tests.tiny import LAYERS, SENTENCES, VOCABULARY, WORDS, random_head, token_vectors
from training.backbones import load
from training.backbones.transformer import Transformer

SPECIAL = [0, 1, 2, 3]  # [PAD], [UNK], [CLS], [SEP]


@pytest.fixture(scope="module")
def distilled(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    directory = tmp_path_factory.mktemp("distilled") / "table"
    distill(checkpoint, directory)
    return Checkpoint.read(directory)


@pytest.fixture(scope="module")
def head(distilled: Checkpoint) -> Head:
    """A random head on the table, with ignored tokens of weight 0."""
    weights = {
        "weighted.ids": np.array(SPECIAL, np.int32),
        "weighted.weights": np.zeros(4, np.float32),
    }
    return random_head(distilled, load(distilled, 16).encode, LAYERS, tensors=weights)


@pytest.fixture
def head_directory(head: Head, tmp_path: Path) -> Path:
    head.save(tmp_path / "head")
    return tmp_path / "head"


def table(checkpoint: Checkpoint) -> np.ndarray:
    return checkpoint.tensors()["embeddings"]


def middle_vectors(tokens: TokenVectors, position: int) -> np.ndarray:
    return np.stack([vectors[position] for vectors in tokens])


def test_rows_are_the_vectors_of_tokens_read_alone(
    checkpoint: Checkpoint, distilled: Checkpoint
) -> None:
    rows = table(distilled)
    assert rows.shape == (len(VOCABULARY), 16)
    assert rows.dtype == np.float32
    expected = middle_vectors(token_vectors(checkpoint, WORDS), 1)  # [CLS] word [SEP]
    np.testing.assert_allclose(rows[4:], expected, atol=1e-5)


def test_template_surrounds_each_token(checkpoint: Checkpoint, tmp_path: Path) -> None:
    distill(checkpoint, tmp_path / "table", template="the dog {token} is red")
    texts = [f"the dog {word} is red" for word in WORDS]
    expected = middle_vectors(token_vectors(checkpoint, texts), 3)
    np.testing.assert_allclose(table(Checkpoint.read(tmp_path / "table"))[4:], expected, atol=1e-5)


def test_reads_the_requested_layer(checkpoint: Checkpoint, tmp_path: Path) -> None:
    distill(checkpoint, tmp_path / "table", layer=1)
    distilled = Checkpoint.read(tmp_path / "table")
    expected = middle_vectors(load(checkpoint, 16, layer=1).encode(WORDS, exact=True), 1)
    np.testing.assert_allclose(table(distilled)[4:], expected, atol=1e-5)
    assert load(distilled, 16).layer == 1
    with pytest.raises(BackboneError, match="has vectors of layer 1 only, so there is no layer 2"):
        load(distilled, 16, layer=2)


def test_special_and_unknown_tokens_are_ignored(distilled: Checkpoint) -> None:
    assert distilled.ignored_ids == SPECIAL
    assert not table(distilled)[SPECIAL].any()


def test_tokenizer_adds_no_special_tokens(distilled: Checkpoint) -> None:
    tokens = load(distilled, 16).encode(["a dog"])
    assert [VOCABULARY[i] for i in tokens.ids] == ["a", "dog"]


def test_distilling_an_added_token_without_an_embedding_ignores_it(
    backbone: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(backbone, tmp_path / "backbone"))
    tokenizer = tokenizers.Tokenizer.from_file(str(copy / "tokenizer.json"))
    tokenizer.add_tokens(["newword"])
    tokenizer.save(str(copy / "tokenizer.json"))
    distill(Checkpoint.read(copy), tmp_path / "table")
    distilled = Checkpoint.read(tmp_path / "table")
    assert distilled.ignored_ids == [*SPECIAL, len(VOCABULARY)]
    assert len(table(distilled)) == len(VOCABULARY) + 1


def test_distills_a_sentencepiece_vocabulary(backbone: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(backbone, tmp_path / "backbone"))
    pieces = [(f"▁{word}", -1.0 - i) for i, word in enumerate(VOCABULARY)]
    tokenizer = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=1))
    tokenizer.save(str(copy / "tokenizer.json"))
    distill(Checkpoint.read(copy), tmp_path / "table")
    distilled = Checkpoint.read(tmp_path / "table")
    assert distilled.ignored_ids == [0, 1]  # the config's padding id, and the unknown token
    transformer = Transformer(Checkpoint.read(copy), 16)
    with torch.inference_mode():
        states = transformer.hidden_states([[4], [5]])  # no special tokens
    rows = states[LAYERS][:, 0].numpy()
    np.testing.assert_allclose(table(distilled)[4:6], rows, atol=1e-5)


def test_head_records_the_source(distilled: Checkpoint, checkpoint: Checkpoint) -> None:
    origin = distilled.origin(LAYERS, 16)
    assert origin == checkpoint.origin(LAYERS, 16).model_copy(update={"template": "{token}"})
    assert origin.architecture == "bert"
    checkpoint.check_digest(origin)
    distilled.check_digest(origin)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sha256": "0" * 64}, r"with weights of SHA-256 000000000000…"),
        ({"layer": 1}, r"trained on layer 1 of .*, but table was distilled from layer 2 of "),
        ({"template": "a {token}"}, r"with the template 'a \{token\}', but table was distilled"),
        ({"template": None}, r"trained on layer 2 of [^']*, but table was distilled"),
    ],
)
def test_rejects_a_table_of_another_origin(
    distilled: Checkpoint, change: dict[str, object], message: str
) -> None:
    with pytest.raises(BackboneError, match=message):
        distilled.check_digest(distilled.origin(LAYERS, 16).model_copy(update=change))


@pytest.mark.parametrize("source", [[], {"name": "m"}])
def test_rejects_a_damaged_source(distilled: Checkpoint, tmp_path: Path, source: object) -> None:
    copy = Path(shutil.copytree(distilled.directory, tmp_path / "copy"))
    config = distilled.config | {"source": source}
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(BackboneError, match=r"config\.json, source: "):
        Checkpoint.read(copy).origin(LAYERS, 16)


def test_transformer_and_table_give_the_same_mixtures(
    head: Head, head_directory: Path, distilled: Checkpoint, backbone: Path, tmp_path: Path
) -> None:
    mixtures = []
    for name, source in (("a", backbone), ("b", distilled.directory)):
        messages: list[str] = []
        store = Store(tmp_path / "store")
        (artifact,) = assemble(head_directory, store, name, str(source), messages.append)
        assert (f"Distilling {backbone.name}" in messages) == (source == backbone)
        assert artifact.manifest.backbone.template == "{token}"
        encoder = Encoder(artifact, provider="cpu")
        mixtures.append(encoder.encode(SENTENCES).mixtures)
        with pytest.raises(EmptyTextError):
            encoder.encode(["[CLS] nothing"])
    np.testing.assert_array_equal(*mixtures)
    np.testing.assert_allclose(mixtures[0], head.tensors["probes"], atol=1e-5)


def test_opening_an_origin_distills_only_for_a_template(
    checkpoint: Checkpoint, distilled: Checkpoint, backbone: Path
) -> None:
    with open_origin(checkpoint.origin(LAYERS, 16), str(backbone)) as opened:
        assert not opened.is_static
    with open_origin(distilled.origin(LAYERS, 16), str(backbone)) as opened:
        np.testing.assert_array_equal(table(opened), table(distilled))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": 3}, "has 2 layers, so there is no layer 3"),
        ({"template": "a word"}, r"template 'a word' must contain \{token\} once"),
        ({"template": "{token} {token}"}, r"must contain \{token\} once"),
        (
            {"template": "the " * 30 + "{token}"},
            "has 33 tokens, special tokens included, but .* has 32 positions",
        ),
    ],
)
def test_rejects_options(
    checkpoint: Checkpoint, tmp_path: Path, options: dict[str, object], message: str
) -> None:
    with pytest.raises(BackboneError, match=message):
        distill(checkpoint, tmp_path / "table", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "table").exists()


def test_rejects_a_static_source(distilled: Checkpoint, tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match="table is a table of token vectors already"):
        distill(distilled, tmp_path / "another")


def test_rejects_a_directory_in_use(checkpoint: Checkpoint, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    with pytest.raises(BackboneError, match="exists: choose another directory"):
        distill(checkpoint, tmp_path)


def test_rejects_an_unsupported_family(checkpoint: Checkpoint, tmp_path: Path) -> None:
    config = checkpoint.config | {"model_type": "gpt2"}
    other = Checkpoint("m", checkpoint.directory, config, checkpoint.sha256)
    with pytest.raises(ExportError, match="m is of the family 'gpt2'"):
        distill(other, tmp_path / "table")


@pytest.mark.parametrize(
    ("vocabulary", "message"),
    [
        ({"[UNK]": 1, "[PAD]": 0}, "has only special tokens"),
        ({"[UNK]": 0, "dog": 7}, "has 2 tokens, but ids up to 7"),
    ],
)
def test_rejects_an_unusable_vocabulary(
    backbone: Path, tmp_path: Path, vocabulary: dict[str, int], message: str
) -> None:
    copy = Path(shutil.copytree(backbone, tmp_path / "backbone"))
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.save(str(copy / "tokenizer.json"))
    with pytest.raises(BackboneError, match=message):
        distill(Checkpoint.read(copy), tmp_path / "table")


def test_rejects_a_damaged_tokenizer(backbone: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(backbone, tmp_path / "backbone"))
    (copy / "tokenizer.json").write_text("{}")
    with pytest.raises(BackboneError, match=r"tokenizer\.json is not a tokenizer"):
        distill(Checkpoint.read(copy), tmp_path / "table")
