import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm, spearmanr

from app.engine import Encoder
from model_store import LatteMixError, Store
from tests.conftest import SENTENCES
from training import cli
from training.backbones import TokenVectors
from training.evaluate import scores, sets
from training.head import Head
from training.pipeline import Encoded, make_head
from training.recipe import Recipe


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder in the benchmarks' layouts; a quote is text there, not quoting."""
    pairs = [(SENTENCES[i].replace("a child", '"a child'), SENTENCES[i - 3]) for i in range(10)]
    stsb = tmp_path / "stsbenchmark"
    stsb.mkdir()
    rows = [f"main\tset\tyear\t{i}\t{i * 7 % 5}.0\t{a}\t{b}" for i, (a, b) in enumerate(pairs)]
    (stsb / "sts-dev.csv").write_text("\n".join(rows) + "\n")
    year = tmp_path / "STS13-en-test"
    year.mkdir()
    for subset, kept in (("FNWN", 10), ("SMT", 9)):
        lines = [f"{a}\t{b}" for a, b in pairs[:kept]]
        (year / f"STS.input.{subset}.txt").write_text("\n".join(lines) + "\n")
        gold = ["" if i == 4 else str(i % 3) for i in range(kept)]  # a pair nobody scored
        (year / f"STS.gs.{subset}.txt").write_text("\n".join(gold) + "\n")
    sick = tmp_path / "SICK"
    sick.mkdir()
    rows = [f"{i}\t{a}\t{b}\t{i % 4}.5\tNEUTRAL" for i, (a, b) in enumerate(pairs)]
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    (sick / "SICK_test_annotated.txt").write_text("\n".join([header, *rows]) + "\n")
    return tmp_path


def test_reading_the_benchmarks(data: Path) -> None:
    stsb, year, sick = (sets.read(data, name) for name in ("stsb-dev", "sts13", "sick-r"))
    assert stsb.gold[:3] == [0, 2, 4]
    assert stsb.a[7].startswith('"a child')
    assert len(year.gold) == 9  # SMT is left out, and the pair without a score
    assert sick.gold[:5] == [0.5, 1.5, 2.5, 3.5, 0.5]
    for pairs in (stsb, year, sick):
        assert len(pairs.a) == len(pairs.b) == len(pairs.gold)
        assert (pairs.a[0], pairs.b[0]) == (SENTENCES[0], SENTENCES[-3])


@pytest.mark.parametrize("line", ["too\tfew", "a\tb\tc\td\tscore\te\tf"])
def test_a_bad_row_is_named_by_file_and_line(data: Path, line: str) -> None:
    path = data / "stsbenchmark" / "sts-dev.csv"
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(LatteMixError, match=r"sts-dev\.csv, line 11: expected a score and two"):
        sets.read(data, "stsb-dev")


def test_files_that_do_not_match_a_set_that_is_not_there_and_one_nobody_knows(data: Path) -> None:
    path = data / "STS13-en-test" / "STS.gs.FNWN.txt"
    path.write_text("1\n2\n")
    with pytest.raises(LatteMixError, match=r"has 10 lines, but STS\.gs\.FNWN\.txt has 2"):
        sets.read(data, "sts13")
    with pytest.raises(LatteMixError, match="has no STS12-en-test: leave that set out"):
        sets.read(data, "sts12")
    with pytest.raises(LatteMixError, match="There is no set 'sts99': choose among stsb-train"):
        sets.read(data, "sts99")


def test_spearman_is_scipys_with_ties() -> None:
    rng = np.random.default_rng(0)
    found, gold = rng.normal(size=50), rng.integers(5, size=50).astype(float)
    expected = 100 * spearmanr(found, gold).statistic
    assert scores.spearman(found, gold) == pytest.approx(expected)


def test_the_interval_tells_a_difference_from_noise() -> None:
    rng = np.random.default_rng(0)
    gold = rng.normal(size=400)
    good, bad = gold + rng.normal(size=400), gold + 4 * rng.normal(size=400)
    same = gold + rng.normal(size=400)
    low, high = scores.interval(good, bad, gold, resamples=200)
    assert 0 < low < scores.spearman(good, gold) - scores.spearman(bad, gold) < high
    low, high = scores.interval(good, same, gold, resamples=200)
    assert low < 0 < high


def test_the_l2_of_gaussian_mixtures_is_the_integral() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(3, 2, 2)), rng.normal(size=(4, 2, 2))  # [S, L, (mean, log variance)]
    x = np.linspace(-30, 30, 200_001)

    def density(codes: np.ndarray, dim: int) -> np.ndarray:
        return np.mean([norm.pdf(x, m, np.exp(v / 2)) for m, v in codes[:, dim]], axis=0)

    squared = [np.trapezoid((density(a, d) - density(b, d)) ** 2, x) for d in range(2)]
    found = scores.gaussian_mixture_l2(a.reshape(3, -1), b.reshape(4, -1))
    assert found == pytest.approx(np.sqrt(np.mean(squared)), rel=1e-5)
    assert scores.gaussian_mixture_l2(a.reshape(3, -1), a.reshape(3, -1)) == pytest.approx(0)


def test_pooling_by_hand(head: Head) -> None:
    vectors = np.random.default_rng(0).normal(size=(5, 16)).astype(np.float32)
    a = TokenVectors(vectors[:2], np.zeros(2, np.int32), np.array([2], np.int32))
    b = TokenVectors(vectors[2:], np.zeros(3, np.int32), np.array([3], np.int32))
    found = scores.pooling_scores(head, a, b)

    def cosine(x: np.ndarray, y: np.ndarray) -> float:
        return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))

    x, y, mean = vectors[:2].mean(axis=0), vectors[2:].mean(axis=0), head.tensors["mean"]
    assert found["mean"] == pytest.approx(cosine(x, y))
    assert found["centred mean"] == pytest.approx(cosine(x - mean, y - mean))
    assert found["max"] == pytest.approx(cosine(vectors[:2].max(axis=0), vectors[2:].max(axis=0)))
    assert found["cls"] == pytest.approx(cosine(vectors[0], vectors[2]))


def test_a_sentence_of_unknown_words_is_like_nothing(head: Head, encoded: Encoded) -> None:
    known = encoded.backbone.encode(SENTENCES[:3])
    none = TokenVectors(known.vectors[:0], known.ids[:0], np.zeros(1, np.int32))
    a, b = TokenVectors.join([known, none]), TokenVectors.join([known, known.take([0])])
    for metric, found in scores.mixture_scores(head, a, b).items():
        assert np.isfinite(found).all(), metric
        assert found[3] <= found[:3].min(), metric
    assert scores.pooling_scores(head, a, b)["mean"][3] == 0


def test_the_control_differs_from_the_head_only_in_its_encoder(head: Head) -> None:
    control = scores.random_control(head)
    np.testing.assert_array_equal(control.tensors["mean"], head.tensors["mean"])
    weight, trained = control.encoder[0][0], head.encoder[0][0]
    assert weight.shape == trained.shape
    assert not np.allclose(weight, trained)
    assert abs(weight).max() <= 1 / np.sqrt(16)
    assert "centre" not in control.tensors
    np.testing.assert_array_equal(scores.random_control(head).encoder[0][0], weight)
    assert not np.allclose(scores.random_control(head, seed=1).encoder[0][0], weight)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    monkeypatch.setattr(sys, "argv", ["lattemix-train", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code


def test_heads_of_several_seeds_and_what_is_served_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    encoded: Encoded,
    recipe: Recipe,
    store: Store,
    head_directory: Path,
    backbone: Path,
    corpus: Path,
    data: Path,
    tmp_path: Path,
) -> None:
    second = recipe.model_copy(update={"seed": 1})
    make_head(encoded, second, "x", progress=False).save(tmp_path / "second")
    kept = (head_directory / "head.json").read_bytes()
    options = ["--head", head_directory, "--head", tmp_path / "second", "--data", data]
    options += ["--sets", "stsb-dev,sts13,sick-r", "--model", "tiny", "--store", store.root]
    options += ["--backbone", backbone, "--corpus", corpus, "--cache", tmp_path / "cache"]
    assert run(monkeypatch, "evaluate", *options, "--record") == 0
    table, differences = capsys.readouterr().out.split("Mixture by centred, minus")
    rows = dict(line.strip("| ").split(" | ", 1) for line in table.splitlines() if "," in line)
    assert len(rows) == 4 + 5 + 5 + 5  # poolings, and every metric of heads, controls and served
    assert rows["mixture, js"].count("±") == rows["random encoder, centred"].count("±") == 4
    assert rows["served, js"].count("±") == rows["pooling, mean"].count("±") == 0
    stsb, year, sick, average = map(float, rows["served, js"].split(" | "))
    assert average == pytest.approx((year + sick) / 2, abs=0.01)  # what is chosen on counts not
    assert differences.count("[") == 3 * 3  # three controls, three sets
    recorded = Head.load(head_directory).spec.evaluation
    assert (recorded["stsb-dev/js"], recorded["sick-r/js"]) == (stsb, sick)
    (head_directory / "head.json").write_bytes(kept)


@pytest.mark.parametrize(("model", "metric"), [("normal", "l2"), ("autoencoder", "cosine")])
def test_the_papers_baselines_are_measured(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    encoded: Encoded,
    recipe: Recipe,
    backbone: Path,
    data: Path,
    tmp_path: Path,
    model: str,
    metric: str,
) -> None:
    chosen = recipe.model_copy(update={"model": model})
    make_head(encoded, chosen, "x", progress=False).save(tmp_path / "head")
    file = data / "stsbenchmark" / "sts-dev.csv"
    options = ["--head", tmp_path / "head", "--data", file, "--backbone", backbone]
    assert run(monkeypatch, "evaluate", *options, "--cache", tmp_path / "cache") == 0
    out = capsys.readouterr().out
    assert out.startswith("| | sts-dev |")
    assert f"| mixture, {metric} |" in out


def test_scores_of_another_model_are_not_recorded(
    monkeypatch: pytest.MonkeyPatch, store: Store, data: Path, tmp_path: Path, head: Head
) -> None:
    other = dataclasses.replace(head, tensors={**head.tensors, "mean": head.tensors["mean"] + 1})
    other.save(tmp_path / "other")
    options = ["--model", "tiny", "--store", store.root, "--head", tmp_path / "other", "--record"]
    code = run(monkeypatch, "evaluate", "--data", data, *options)
    assert "The model 'tiny' was not made with this head" in str(code)
    assert Head.load(tmp_path / "other").spec.evaluation == {}


def test_what_was_trained_and_what_is_served_score_the_same(
    head: Head, encoded: Encoded, data: Path, encoder: Encoder
) -> None:
    pairs = sets.read(data, "stsb-dev")
    a, b = (encoded.backbone.encode(texts) for texts in (pairs.a, pairs.b))
    trained = scores.mixture_scores(head, a, b)
    left, right = encoder.encode(pairs.a).mixtures, encoder.encode(pairs.b).mixtures
    served = scores.served_scores(left, right, encoder.centre)
    assert served.keys() == trained.keys()
    for metric, found in served.items():
        np.testing.assert_allclose(found, trained[metric], atol=1e-4)
