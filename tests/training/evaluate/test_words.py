import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from lattemix.build.backbones import Checkpoint
from lattemix.build.backbones.words import save
from model_store import LatteMixError
from training import cli
from training.backbones import load
from training.cache import VectorCache
from training.evaluate.words import embed_words, first_component, measure_words

PIECES = ["the", "dog", "D", "##og", "run", "##s", "##ning", "##way", ","]


@pytest.fixture
def pieces(backbone: Path, tmp_path: Path) -> Path:
    """The tiny BERT with a tokenizer that splits words."""
    directory = shutil.copytree(backbone, tmp_path / "pieces")
    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *PIECES])}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def test_measures_every_layer(data: Path, backbone: Path, cache: VectorCache) -> None:
    report = measure_words(str(backbone), [1, 2, 3], data, cache)
    assert [*report.scores] == [1, 2]
    scores = [report.scores[layer]["simlex999"] for layer in (1, 2)]
    assert all((score.covered, score.total) == (3, 4) for score in scores)  # no cat in the sets
    notes = " ".join(report.left_out)
    assert "has 2 layers, so there is no layer 3." in notes
    assert "men: Cannot read" in notes
    assert "sts12: " in notes
    (table,) = report.tables()
    assert [row[0] for row in table.rows] == ["layer 1", "layer 2", "words found"]
    assert table.rows[2][1] == "75%"
    assert [record["layer"] for record in report.records()] == [1, 2]


def test_raises_if_no_layer_exists(data: Path, backbone: Path, cache: VectorCache) -> None:
    with pytest.raises(LatteMixError, match="has 2 layers, so there is no layer 9"):
        measure_words(str(backbone), [9], data, cache)


def test_words_command_with_static_vectors(
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["man", "dog", "sea", "blue", "market", "prices", "cat"]
    vectors = [[1, 0], [0, 1], [1, 0], [1, 1], [1, 0], [3, 1], [0, 2]]
    save(words, np.array(vectors, np.float32), tmp_path / "static")
    out = tmp_path / "report"
    options = ["--backbone", tmp_path / "static", "--data", data, "--out", out]
    options += ["--cache", tmp_path / "cache"]
    monkeypatch.setattr(sys, "argv", ["lattemix-train", "words", *map(str, options)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 0
    assert "| layer 0 | 100.00 |" in capsys.readouterr().out  # the cosines rise as the scores do
    (record,) = json.loads((out / "report.json").read_text())["results"]
    assert (record["value"], record["covered"]) == (100, 4)


@pytest.mark.parametrize("n", [2, 7, 16, 40])
def test_first_component_matches_svd(n: int) -> None:
    rng = np.random.default_rng(n)
    occurrences = rng.normal(size=(n, 16)).astype(np.float32) + rng.normal(size=16)
    for x in (occurrences, -occurrences):
        component = unit(first_component(x))
        expected = np.linalg.svd(x)[2][0]
        assert abs(component @ expected) == pytest.approx(1, abs=1e-5)
        assert component @ x.mean(axis=0) > 0  # the sign of an SVD is arbitrary


def test_first_component_of_one_occurrence_is_itself() -> None:
    np.testing.assert_array_equal(first_component(np.array([[-3.0, 4.0]])), [-3, 4])


def test_static_vectors_are_used_as_they_are(tmp_path: Path) -> None:
    vectors = np.array([[3, 4], [0, -2], [1, 0]], np.float32)
    save(["Oslo", "dog", "Dog"], vectors, tmp_path)
    embedding = embed_words(load(Checkpoint.read(tmp_path), 8), VectorCache(tmp_path), [])
    assert embedding.index == {"Oslo": 0, "dog": 1, "Dog": 2}  # and no [UNK]
    np.testing.assert_allclose(embedding.vectors, [[0.6, 0.8], [0, -1], [1, 0]], atol=1e-6)
    # As written, else in lower case.
    assert embedding.find(["Dog", "dog", "DOG", "oslo"]).tolist() == [2, 1, 1, -1]


def test_word_vector_is_the_mean_of_its_tokens(pieces: Path, tmp_path: Path) -> None:
    backbone, cache = load(Checkpoint.read(pieces), 16), VectorCache(tmp_path)
    sentences = ["the dog, running", "runs the runway Dog"]
    embedding = embed_words(backbone, cache, [sentences])
    assert [*embedding.index] == ["the", "dog", ",", "running", "runs", "runway"]
    vectors = cache.encode(backbone, sentences).vectors.astype(np.float32)
    # [CLS] the dog , run ##ning [SEP] [CLS] run ##s the run ##way D ##og [SEP]
    for word, tokens in {",": [3], "running": [4, 5], "runs": [8, 9], "runway": [11, 12]}.items():
        expected = unit(vectors[tokens].mean(axis=0))
        np.testing.assert_allclose(embedding.vectors[embedding.index[word]], expected, atol=1e-3)
    dogs = np.stack([vectors[2], vectors[[13, 14]].mean(axis=0)])
    for word, occurrences in {"the": vectors[[1, 10]], "dog": dogs}.items():
        expected = unit(first_component(occurrences))
        np.testing.assert_allclose(embedding.vectors[embedding.index[word]], expected, atol=1e-3)


def test_ignores_a_truncated_word(pieces: Path, tmp_path: Path) -> None:
    backbone = load(Checkpoint.read(pieces), 5)  # [CLS] the dog run [SEP]
    embedding = embed_words(backbone, VectorCache(tmp_path), [["the dog running"]])
    assert [*embedding.index] == ["the", "dog"]


def test_shards_do_not_change_the_vectors(pieces: Path, tmp_path: Path) -> None:
    backbone, cache = load(Checkpoint.read(pieces), 16), VectorCache(tmp_path)
    sentences = ["the dog runs", "", "the dog, the dog", "runway", "running dog"]
    joined = embed_words(backbone, cache, [sentences])
    split = embed_words(backbone, cache, [[text] for text in sentences])  # one has no word
    assert split.index == joined.index
    np.testing.assert_allclose(split.vectors, joined.vectors, atol=2e-3)


def test_raises_if_the_tokenizer_finds_no_words(pieces: Path, tmp_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(pieces / "tokenizer.json"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(",", "isolated")
    tokenizer.save(str(pieces / "tokenizer.json"))
    with pytest.raises(LatteMixError, match="of pieces finds no words in the 1 sentences"):
        embed_words(load(Checkpoint.read(pieces), 16), VectorCache(tmp_path), [["the dog"]])
