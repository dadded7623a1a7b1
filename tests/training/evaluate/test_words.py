import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, processors

from lattemix.build.backbones import Checkpoint
from lattemix.build.backbones import words as word_vectors
from model_store import LatteMixError
from training.backbones import load
from training.cache import VectorCache
from training.evaluate import word_scores
from training.evaluate.word_scores import WordScore, evaluate_words, purity
from training.evaluate.word_sets import (
    Analogies,
    Categories,
    Relation,
    Relations,
    Similarity,
    read_benchmarks,
)
from training.evaluate.words import Embedding, contextual_words, first_component, static_words

NAMES = ["simlex999", "men", "ws353", "rw", "google", "msr", "semeval2012_2", "ap", "bless"]
PIECES = ["the", "dog", "D", "##og", "run", "##s", "##ning", "##way", ","]

PLANE = Embedding.of(["right", "up", "between"], np.array([[2, 0], [0, 1], [0.6, 0.8]], np.float32))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder in the benchmarks' layouts."""
    for name in ("SIMLEX-999", "MEN-TR-3k", "RW-STANFORD"):
        (tmp_path / f"EN-{name}.txt").write_text("old\tnew\t1.58\nsmart\tclever\t9.2\n")
    (tmp_path / "EN-WS-353-ALL.txt").write_bytes(b"love\tsex\t6.77\r\ntiger\ttiger\t10.00\r\n")
    four = ",type,word1,word2,word3,target\n"
    for name in ("google-analogies", "msr"):
        questions = "0,capital,Athens,Greece,Oslo,Norway\n1,plural,cat,cats,dog,dogs\n"
        (tmp_path / f"analogy-{name}.csv").write_text(four + questions)
    rows = ["5h, catch,elusive,eat,edible", "5h,fix,broken,eat,edible", "5h,fix,broken,see,dim"]
    rows += ["2c,mile,yard,hour,minute"]
    numbered = "".join(f"{number},{row}\n" for number, row in enumerate(rows))
    (tmp_path / "analogy-semeval.csv").write_text(four + numbered)
    for name in ("ap", "bless"):
        path = tmp_path / f"categorization-{name}.csv"
        path.write_text(",category,word\n0,tree,oak\n1,tree,elm\n2,bird,owl\n")
    return tmp_path


@pytest.fixture
def pieces(backbone: Path, tmp_path: Path) -> Path:
    """The tiny BERT with a tokenizer that splits words in pieces."""
    directory = shutil.copytree(backbone, tmp_path / "pieces")
    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *PIECES])}
    tokenizer = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    return directory


def unheard(sentence: str) -> None:
    raise AssertionError(sentence)


def unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.linalg.norm(vector)


def test_reading_the_benchmarks(data: Path) -> None:
    benchmarks = {benchmark.name: benchmark for benchmark in read_benchmarks(data, unheard)}
    assert [*benchmarks] == NAMES
    pairs = [("love", "sex"), ("tiger", "tiger")]
    assert benchmarks["ws353"] == Similarity("ws353", pairs, [6.77, 10])
    questions = [("Athens", "Greece", "Oslo", "Norway"), ("cat", "cats", "dog", "dogs")]
    assert benchmarks["google"] == Analogies("google", questions)
    opposite = Relation(
        [("catch", "elusive"), ("fix", "broken")], [("eat", "edible"), ("see", "dim")]
    )
    part = Relation([("mile", "yard")], [("hour", "minute")])
    assert benchmarks["semeval2012_2"] == Relations("semeval2012_2", [opposite, part])
    categories = Categories("ap", ["oak", "elm", "owl"], ["tree", "tree", "bird"])
    assert benchmarks["ap"] == categories


def test_files_that_are_not_there(data: Path, tmp_path: Path) -> None:
    (data / "EN-MEN-TR-3k.txt").unlink()
    told: list[str] = []
    assert [benchmark.name for benchmark in read_benchmarks(data, told.append)] == [
        name for name in NAMES if name != "men"
    ]
    (sentence,) = told
    assert sentence.endswith("EN-MEN-TR-3k.txt: No such file or directory. So men is left out.")
    with pytest.raises(LatteMixError, match=r"nowhere holds no word benchmark: .* EN-SIMLEX-999"):
        read_benchmarks(tmp_path / "nowhere", told.append)
    assert len(told) == 1 + len(NAMES)


@pytest.mark.parametrize(
    ("file", "line", "says"),
    [
        (
            "EN-SIMLEX-999.txt",
            "old\tnew",
            "line 3: expected two words and a score; it is left out.",
        ),
        ("EN-SIMLEX-999.txt", "old\tnew\thigh", "line 3: expected two words and a score"),
        ("EN-SIMLEX-999.txt", "old\tnew\tnan", "line 3: expected two words and a score"),
        ("EN-SIMLEX-999.txt", "old\t\t1", "line 3: expected two words and a score"),
        ("analogy-msr.csv", "2,plural,a,b,c", "line 4: expected type, word1, word2, word3, target"),
        ("categorization-ap.csv", "3,bird,", "line 5: expected category, word; it is left out."),
        (
            "categorization-ap.csv",
            "3,,a\n4",
            "line 5: expected category, word; it is left out, with 1 more",
        ),
    ],
)
def test_a_bad_row_is_named_and_left_out(data: Path, file: str, line: str, says: str) -> None:
    whole = read_benchmarks(data, unheard)
    (data / file).write_text((data / file).read_text() + line + "\n")
    told: list[str] = []
    assert read_benchmarks(data, told.append) == whole
    (sentence,) = told
    assert f"{file}, {says}" in sentence


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"category,words\na,b\nc,d\n", "line 1: expected columns named category, word. So ap is"),
        (b"category,word\na,b\n", "holds fewer than two rows to measure with. So ap is left out."),
        (b"", "line 1: expected columns named category, word."),
        (b"category,word\na,\xff\n", "is not UTF-8 text"),
    ],
)
def test_a_bad_file_is_left_out(data: Path, content: bytes, says: str) -> None:
    (data / "categorization-ap.csv").write_bytes(content)
    told: list[str] = []
    assert [benchmark.name for benchmark in read_benchmarks(data, told.append)] == [
        name for name in NAMES if name != "ap"
    ]
    assert says in told[0]
    assert len(told) == 1


@pytest.mark.parametrize("n", [2, 7, 16, 40])
def test_the_first_component_is_that_of_an_svd(n: int) -> None:
    rng = np.random.default_rng(n)
    occurrences = rng.normal(size=(n, 16)).astype(np.float32) + rng.normal(size=16)
    for x in (occurrences, -occurrences):
        found = unit(first_component(x))
        expected = np.linalg.svd(x)[2][0]
        assert abs(found @ expected) == pytest.approx(1, abs=1e-5)
        assert found @ x.mean(axis=0) > 0  # whichever sign the SVD gave


def test_the_one_component_of_one_occurrence() -> None:
    np.testing.assert_array_equal(first_component(np.array([[-3.0, 4.0]])), [-3, 4])


def test_static_words_are_the_vocabulary(tmp_path: Path) -> None:
    vectors = np.array([[3, 4], [0, -2], [1, 0]], np.float32)
    word_vectors.save(["Oslo", "dog", "Dog"], vectors, tmp_path)
    embedding = static_words(load(Checkpoint.read(tmp_path), 8))
    assert embedding.index == {"Oslo": 0, "dog": 1, "Dog": 2}  # and no [UNK]
    np.testing.assert_allclose(embedding.vectors, [[0.6, 0.8], [0, -1], [1, 0]], atol=1e-6)
    # As it is written if that is there, or in lower case; other spellings are other words.
    assert embedding.find(["Dog", "dog", "DOG", "oslo"]).tolist() == [2, 1, 1, -1]


def test_a_word_in_pieces_is_their_mean(pieces: Path, tmp_path: Path) -> None:
    backbone, cache = load(Checkpoint.read(pieces), 16), VectorCache(tmp_path)
    sentences = ["the dog, running", "runs the runway Dog"]
    embedding = contextual_words(backbone, cache, [sentences])
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


def test_a_word_that_is_cut_is_not_taken_for_its_beginning(pieces: Path, tmp_path: Path) -> None:
    backbone = load(Checkpoint.read(pieces), 5)  # [CLS] the dog run [SEP]
    embedding = contextual_words(backbone, VectorCache(tmp_path), [["the dog running"]])
    assert [*embedding.index] == ["the", "dog"]


def test_shards_make_no_difference(pieces: Path, tmp_path: Path) -> None:
    backbone, cache = load(Checkpoint.read(pieces), 16), VectorCache(tmp_path)
    sentences = ["the dog runs", "", "the dog, the dog", "runway", "running dog"]
    whole = contextual_words(backbone, cache, [sentences])
    split = contextual_words(backbone, cache, [[text] for text in sentences])  # one has no word
    assert split.index == whole.index
    np.testing.assert_allclose(split.vectors, whole.vectors, atol=2e-3)


def test_a_tokenizer_that_knows_no_words(pieces: Path, tmp_path: Path) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(pieces / "tokenizer.json"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(",", "isolated")
    tokenizer.save(str(pieces / "tokenizer.json"))
    with pytest.raises(LatteMixError, match="of pieces finds no words in the 1 sentences"):
        contextual_words(load(Checkpoint.read(pieces), 16), VectorCache(tmp_path), [["the dog"]])


@pytest.mark.parametrize(
    ("pairs", "gold", "expected"),
    [
        # Cosines 0, 0.6, 0.8 against 1, 3, 2: one pair of neighbours is swapped.
        ([("right", "up"), ("Right", "between"), ("up", "between")], [1, 3, 2], (50, 3, 3)),
        # The mean is (1.6, 1.8) / 3: 0.53 with `right`, 0.64 with itself.
        (
            [("right", "up"), ("right", "?"), ("between", "right"), ("?", "!")],
            [1, 2, 3, 4],
            (100, 2, 4),
        ),
    ],
)
def test_similarity_by_hand(
    pairs: list[tuple[str, str]], gold: list[float], expected: tuple[float, int, int]
) -> None:
    score = evaluate_words(PLANE, [Similarity("x", pairs, gold)])["x"]
    assert (round(score.value, 6), score.covered, score.total) == expected


def test_similarity_of_words_nobody_knows() -> None:
    score = evaluate_words(PLANE, [Similarity("x", [("?", "!"), ("!", "?")], [1, 2])])["x"]
    assert np.isnan(score.value)
    assert score.covered == 0


@pytest.mark.parametrize("at_once", [1, 2**20])
def test_analogies_by_hand(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(word_scores, "_SCORES_AT_ONCE", at_once)
    names = ["man", "woman", "king", "queen", "lad", "cat", "cats", "dog", "dogs"]
    vectors = np.zeros((9, 6), np.float32)
    vectors[:5, :3] = [[0, 1, 0], [0, 0.8, 0.6], [1, 1, 0], [1, 0.8, 0.6], [1, 1.2, -0.9]]
    vectors[5:, 3:] = [[1, 0, 0], [0.8, 0.6, 0], [0, 0, 1], [0.4, 0.3, 0.87]]
    embedding = Embedding.of(names, vectors)
    questions = [
        ("man", "woman", "king", "queen"),
        ("woman", "man", "queen", "king"),
        ("man", "woman", "king", "cat"),
        ("cat", "cats", "dog", "dogs"),  # the dog is nearer, but it is in the question
        ("man", "woman", "boy", "girl"),
        ("man", "woman", "king", "empress"),
    ]
    scores = evaluate_words(embedding, [Analogies("x", questions), Analogies("y", questions[4:])])
    assert scores == {"x": WordScore(100 * 3 / 6, 4, 6), "y": WordScore(0, 0, 2)}


def test_relations_by_hand() -> None:
    # Along the example's (1, -1), the pairs go 2, 1.2, -1.2 and 0.
    pairs = [("right", "up"), ("right", "between"), ("between", "right"), ("up", "up")]
    best_first = Relation([("right", "up")], [pairs[0], pairs[1], pairs[3], pairs[2]])
    worst_first = Relation([("right", "up")], best_first.ranked[::-1])
    unknown = Relation([("?", "up")], [("?", "?"), ("!", "!")])

    def value(*relations: Relation) -> tuple[float, int, int]:
        score = evaluate_words(PLANE, [Relations("x", [*relations])])["x"]
        return round(score.value, 6), score.covered, score.total

    assert value(best_first) == (100, 4, 4)
    assert value(worst_first) == (-100, 4, 4)
    assert value(best_first, unknown) == (50, 4, 6)


def test_purity_by_hand() -> None:
    labels, clusters = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 1, 3])
    assert purity(labels, clusters) == pytest.approx((2 + 2 + 1) / 6)
    assert purity(labels, np.zeros(6, int)) == pytest.approx(3 / 6)
    assert purity(labels, np.arange(6)) == 1


def grouped(noise: float) -> tuple[Embedding, Categories]:
    """Three groups of five words around three axes."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 5)
    vectors = np.eye(8)[labels] + noise * rng.normal(size=(15, 8))
    names = [f"word{i}" for i in range(15)]
    categories = Categories("x", names, [f"category{label}" for label in labels])
    return Embedding.of(names, vectors.astype(np.float32)), categories


def test_categories_by_hand() -> None:
    embedding, categories = grouped(0.05)
    assert evaluate_words(embedding, [categories])["x"] == WordScore(100, 15, 15)
    # One word under another's category is one word less.
    moved = Categories("x", categories.words, [*categories.categories[:-1], "category0"])
    assert evaluate_words(embedding, [moved])["x"].value == pytest.approx(100 * 14 / 15)
    # One word that is missing lies between the groups, and so in one of them, or apart.
    missing = Categories("x", [*categories.words[:-1], "?"], categories.categories)
    score = evaluate_words(embedding, [missing])["x"]
    assert score.value >= 100 * 14 / 15
    assert (score.covered, score.total) == (14, 15)


def test_the_best_clustering_counts() -> None:
    embedding, categories = grouped(0.5)
    labels = np.repeat(np.arange(3), 5)
    clusterings = word_scores._clusterings(embedding.vectors.astype(np.float64), 3)
    purities = sorted(100 * purity(labels, clusters) for clusters in clusterings)
    assert purities[0] < purities[-1] == evaluate_words(embedding, [categories])["x"].value


def test_clusterings_are_of_the_size_asked_for_and_the_same_every_time() -> None:
    vectors = grouped(1.0)[0].vectors.astype(np.float64)
    first, second = (list(word_scores._clusterings(vectors, 4)) for _ in range(2))
    assert len(first) == 6
    for clusters, again in zip(first, second, strict=True):
        assert len(np.unique(clusters)) == 4
        np.testing.assert_array_equal(clusters, again)


def without_meaning(embedding: Embedding) -> Embedding:
    return Embedding.of([*embedding.index], np.zeros_like(embedding.vectors))


def without_the_words(embedding: Embedding) -> Embedding:
    return Embedding.of([f"other{i}" for i in range(15)], embedding.vectors)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(("emptied", "covered"), [(without_meaning, 15), (without_the_words, 0)])
def test_words_that_are_all_alike_still_fall_into_clusters(
    emptied: Callable[[Embedding], Embedding], covered: int
) -> None:
    embedding, categories = grouped(0.05)
    score = evaluate_words(emptied(embedding), [categories])["x"]
    assert 100 / 3 <= score.value < 100
    assert score.covered == covered
