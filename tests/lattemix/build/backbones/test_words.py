import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from lattemix.build.assemble import assemble
from lattemix.build.backbones import BackboneError, Checkpoint, TokenVectors, open_backbone, words
from lattemix.encoder import Encoder
from lattemix.errors import EmptyTextError
from model_store import LatteMixError, Store
from training.backbones import load
from training.cache import VectorCache
from training.corpus import prepare
from training.encoding import EncodedCorpus
from training.job import make_head
from training.recipe import Recipe
from training.weighting import _second_half

WORDS = ["the", "dog", "runs", "sleeps", ","]
VECTORS = np.random.default_rng(0).normal(size=(5, 8)).astype(np.float32)


def as_text(path: Path, header: bool = False) -> Path:
    rows = [
        f"{word} " + " ".join(map(repr, row.tolist()))
        for word, row in zip(WORDS, VECTORS, strict=True)
    ]
    path.write_text("\n".join((["5 8"] if header else []) + rows) + "\n")
    return path


def as_binary(path: Path, end: bytes = b"\n") -> Path:
    rows = [
        word.encode() + b" " + struct.pack("8f", *row) + end
        for word, row in zip(WORDS, VECTORS, strict=True)
    ]
    path.write_bytes(b"5 8\n" + b"".join(rows))
    return path


def as_matrix(path: Path, index: str) -> Path:
    np.save(path, VECTORS)
    if index == "json":
        path.with_suffix(".json").write_text(json.dumps(WORDS))
    elif index == "txt":
        path.with_suffix(".txt").write_text("\n".join(WORDS) + "\n")
    else:
        parquet.write_table(pa.table({"index": WORDS}), path.parent / "index.parquet")
    return path


FORMATS = {
    "glove": lambda d: as_text(d / "glove.txt"),
    "word2vec text": lambda d: as_text(d / "w.vec", header=True),
    "word2vec binary": lambda d: as_binary(d / "w.bin"),
    "word2vec binary without line ends": lambda d: as_binary(d / "w.bin", b""),
    "matrix and json": lambda d: as_matrix(d / "w.npy", "json"),
    "matrix and text": lambda d: as_matrix(d / "w.npy", "txt"),
    "matrix and parquet": lambda d: as_matrix(d / "w.npy", "parquet"),
}


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_backbone(tmp_path: Path, kind: str) -> None:
    words.save(WORDS, VECTORS, tmp_path / "reference")
    with open_backbone(str(FORMATS[kind](tmp_path))) as checkpoint:
        assert checkpoint.sha256 == Checkpoint.read(tmp_path / "reference").sha256
        backbone = load(checkpoint, 16)
        encoded = backbone.encode(["The dog, sleeping, runs", "nothing known"])
    assert (backbone.hidden_size, backbone.layer) == (8, 0)
    assert encoded.lengths.tolist() == [6, 2]
    expected = np.zeros((8, 8), np.float32)
    expected[[0, 1, 2, 4, 5]] = VECTORS[[0, 1, 4, 4, 2]]
    np.testing.assert_array_equal(encoded.vectors, expected)
    known = encoded.without(checkpoint.unknown_id)
    assert known.lengths.tolist() == [5, 0]


def test_a_cased_vocabulary_is_not_lowercased(tmp_path: Path) -> None:
    words.save(["Dog", "dog"], VECTORS[:2], tmp_path)
    encoded = load(Checkpoint.read(tmp_path), 16).encode(["Dog dog DOG"])
    np.testing.assert_array_equal(encoded.vectors, [*VECTORS[:2], np.zeros(8)])


def test_a_word_with_spaces_and_a_word_that_comes_twice(tmp_path: Path) -> None:
    (tmp_path / "w.txt").write_text("a 1 2\n. . . 3 4\na 5 6\n")
    words.convert(tmp_path / "w.txt", tmp_path / "out")
    backbone = load(Checkpoint.read(tmp_path / "out"), 16)
    np.testing.assert_array_equal(backbone.encode(["a"]).vectors, [[1, 2]])
    assert backbone.checkpoint.config["vocab_size"] == 3


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("w.txt", b"", "holds no word vectors"),
        ("w.txt", b"a 1 2\nb 3\n", "line 2: expected a word and 2 numbers"),
        ("w.txt", b"a 1 2\nb 3 x\n", "line 2: expected a word and 2 numbers"),
        ("w.txt", b"a 1 2\nb nan 4\n", r"The vector of 'b' \(row 2\) is not finite"),
        ("w.txt", b"\x93\xff 1 2\n", "line 1 is not UTF-8 text"),
        ("w.bin", b"five words\n", "is not in word2vec's binary format"),
        ("w.bin", b"2 2\na " + struct.pack("2f", 1, 2) + b"b \x00", "ends after 1 of its 2 words"),
        ("w.kv", b"\x80\x04", "is a pickle, which can run code"),
        ("w.npy", b"nonsense", "is not a matrix of numbers"),
    ],
)
def test_a_damaged_file_is_a_sentence(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(words.WordVectorsError, match=says):
        words.convert(tmp_path / name, tmp_path / "out")


def test_a_matrix_without_its_words(tmp_path: Path) -> None:
    np.save(tmp_path / "w.npy", VECTORS)
    with pytest.raises(words.WordVectorsError, match=r"no index beside it: .* into w\.txt"):
        words.convert(tmp_path / "w.npy", tmp_path / "out")
    (tmp_path / "w.txt").write_text("one\ntwo\n")
    with pytest.raises(words.WordVectorsError, match="5 vectors for 2 words"):
        words.convert(tmp_path / "w.npy", tmp_path / "out")


def test_static_vectors_have_no_layers(tmp_path: Path) -> None:
    words.save(WORDS, VECTORS, tmp_path)
    with pytest.raises(BackboneError, match="has no layers, so there is no layer 2"):
        load(Checkpoint.read(tmp_path), 16, layer=2)


def test_a_corpus_in_another_language(tmp_path: Path) -> None:
    words.save(WORDS, VECTORS, tmp_path / "words")
    recipe = Recipe(latent_dims=4, classes=5, steps=1, max_tokens=16)
    backbone = load(Checkpoint.read(tmp_path / "words"), recipe.max_tokens)
    corpus = prepare(["der Hund läuft", "die Katze"], tmp_path / "c")
    with pytest.raises(BackboneError, match="words knows no word of the corpus"):
        make_head(EncodedCorpus(backbone, corpus, VectorCache(tmp_path / "v")), recipe, "x")


@pytest.mark.parametrize("weighting", ["uniform", "sif", "learned"])
def test_word_vectors_are_trained_on_and_served_as_any_backbone(
    tmp_path: Path, weighting: str
) -> None:
    words.save(WORDS, VECTORS, tmp_path / "words")
    sentences = ["the dog runs", "the dog sleeps", "the unknown dog", "the , dog", "nothing"]
    recipe = Recipe(latent_dims=4, classes=5, steps=5, max_tokens=16, token_weighting=weighting)
    backbone = load(Checkpoint.read(tmp_path / "words"), recipe.max_tokens)
    encoded = EncodedCorpus(
        backbone, prepare(sentences, tmp_path / "c"), VectorCache(tmp_path / "v")
    )
    head = make_head(encoded, recipe, "five sentences", progress=False)
    # Most of the usual probes hold no word it knows; its own words do.
    assert head.spec.probes[-1] == "the dog runs sleeps ,"
    assert 2 <= len(head.spec.probes) < 16
    head.save(tmp_path / "head")

    (artifact,) = assemble(tmp_path / "head", Store(tmp_path), "static", str(tmp_path / "words"))
    assert artifact.manifest.token_weighting == weighting
    encoder = Encoder(artifact)
    expected = head.mixtures(backbone.encode(sentences[:4]))
    np.testing.assert_allclose(encoder.encode(sentences[:4]).mixtures, expected, atol=1e-6)
    # An unknown word weighs nothing, wherever it stands.
    with_unknown, without = encoder.encode(["the unknown dog", "the dog"]).mixtures
    np.testing.assert_allclose(with_unknown, without, atol=1e-6)
    with pytest.raises(EmptyTextError, match="Text 2 is empty"):
        encoder.encode(["the dog", "nothing known"])


def test_smooth_inverse_frequency(tmp_path: Path) -> None:
    words.save(WORDS, VECTORS, tmp_path / "words")
    recipe = Recipe(latent_dims=4, classes=5, steps=1, max_tokens=16, token_weighting="sif")
    backbone = load(Checkpoint.read(tmp_path / "words"), recipe.max_tokens)
    corpus = prepare(["the dog", "the cat"], tmp_path / "c")
    head = make_head(
        EncodedCorpus(backbone, corpus, VectorCache(tmp_path / "v")), recipe, "x", progress=False
    )
    the, dog, runs, unknown = head.weights(backbone.encode(["the dog runs unknown"]))
    assert the == pytest.approx(1e-3 / (1e-3 + 2 / 4))
    assert dog == pytest.approx(1e-3 / (1e-3 + 1 / 4))
    assert (runs, unknown) == (1, 0)  # never seen says most; not a word says nothing


def test_words_that_stand_in_every_sentence_learn_to_weigh_little(tmp_path: Path) -> None:
    # Each sentence repeats one of ten topics among words that all sentences share.
    rng = np.random.default_rng(0)
    topics, common = [f"topic{i}" for i in range(10)], [f"common{i}" for i in range(10)]
    vectors = rng.normal(size=(20, 16)).astype(np.float32)
    vectors[10:] += 2  # what they share, the weigher can see
    words.save([*topics, *common], vectors, tmp_path / "words")
    sentences = []
    for i in range(400):
        sentences.append(" ".join([topics[i % 10]] * 4 + [*rng.choice(common, 8)]))
    settings = {"latent_dims": 8, "classes": 6, "steps": 50, "max_tokens": 16}
    recipe = Recipe(**settings, token_weighting="learned", inference_temperature=0.05)
    backbone = load(Checkpoint.read(tmp_path / "words"), recipe.max_tokens)
    encoded = EncodedCorpus(
        backbone, prepare(sentences, tmp_path / "c"), VectorCache(tmp_path / "v")
    )
    head = make_head(encoded, recipe, "x", progress=False)
    weights = head.weights(backbone.encode([*topics, *common, "unknown"]))
    assert weights[:10].min() > 2 * weights[10:20].max()
    assert weights[20] == 0
    again = make_head(encoded, recipe, "x", progress=False)
    for name, tensor in head.tensors.items():
        np.testing.assert_array_equal(tensor, again.tensors[name])


def test_weights_are_not_learned_where_a_word_has_many_vectors(encoded: EncodedCorpus) -> None:
    recipe = Recipe(latent_dims=4, classes=5, steps=1, max_tokens=16, token_weighting="learned")
    with pytest.raises(LatteMixError, match="is for static word vectors, and tiny-bert0 is not"):
        make_head(encoded, recipe, "x", progress=False)


def test_halves_are_disjoint_random_and_even() -> None:
    lengths = np.array([6, 7, 1], np.int32)
    tokens = TokenVectors(np.zeros((14, 2)), np.zeros(14, np.int32), lengths)
    seen = np.array([_second_half(tokens, np.random.default_rng(i)) for i in range(300)])
    assert (seen[:, :6].sum(axis=1) == 3).all()
    assert (seen[:, 6:13].sum(axis=1) == 4).all()
    assert (abs(seen[:, :6].mean(axis=0) - 0.5) < 0.1).all()
