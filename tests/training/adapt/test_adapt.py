"""`lattemix-train adapt` on a tiny BERT, and on tiny word vectors."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from lattemix import load as load_model
from lattemix.build.assemble import assemble
from lattemix.build.head import Head
from model_store import Store
from tests.tiny import WORDS, write_static
from tests.training.conftest import Run
from training.report import CARD

RNG_SEED = 3
ANIMALS = ("dog", "child", "man", "women", "ball", "sea")
FILLERS = [word for word in WORDS if word not in ANIMALS]


def write(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def sentence(rng: np.random.Generator, subject: str) -> str:
    words = [subject, *rng.choice(FILLERS, 2, replace=False)]
    return " ".join(rng.permutation(words))


def learnable(count: int, seed: int = RNG_SEED) -> list[tuple[str, str, int]]:
    """Pairs that are duplicates if they are about the same subject, whatever else they say."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        first, other = rng.choice(ANIMALS, 2, replace=False)
        second = first if i % 2 else other
        rows.append((sentence(rng, first), sentence(rng, second), i % 2))
    return rows


def random_labels(count: int) -> list[tuple[str, str, int]]:
    rng = np.random.default_rng(RNG_SEED)
    return [(a, b, int(rng.random() < 0.5)) for a, b, _ in learnable(count)]


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write(tmp_path / "pairs.csv", ("a", "b", "label"), learnable(300))


@pytest.fixture
def common(head_directory: Path, backbone: Path, tmp_path: Path) -> list[object]:
    """Arguments of an adaptation of the tiny head, except labels and --out."""
    options = ["--backbone", backbone, "--cache", tmp_path / "cache"]
    return ["adapt", "--head", head_directory, *options]


@pytest.fixture
def static(tmp_path: Path) -> list[object]:
    """The same for word vectors."""
    vectors, head = tmp_path / "vectors", tmp_path / "static"
    vectors.mkdir()
    write_static(vectors, head)
    return ["adapt", "--head", head, "--backbone", vectors, "--cache", tmp_path / "cache"]


def auc(model: object, rows: Sequence[tuple[str, str, int]]) -> float:
    scores = [model.similarity(a, b) for a, b, _ in rows]  # type: ignore[attr-defined]
    positives = [s for s, row in zip(scores, rows, strict=True) if row[2]]
    negatives = [s for s, row in zip(scores, rows, strict=True) if not row[2]]
    return float(np.mean([p > n for p in positives for n in negatives]))


def test_adapted_head_is_better_on_pairs_it_never_saw_and_exports(
    run: Run,
    common: list[object],
    pairs: Path,
    backbone: Path,
    head_directory: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "adapted"
    assert run(*common, "--pairs", pairs, "--out", out) == 0
    store = Store(tmp_path / "store")
    assemble(head_directory, store, "base", str(backbone))
    (artifact,) = assemble(out, store, "adapted", str(backbone))
    assert artifact.manifest.parity is not None
    unseen = learnable(200, seed=99)
    before, after = (
        auc(load_model(name, store=tmp_path / "store"), unseen) for name in ("base", "adapted")
    )
    assert after > before + 0.05


def test_head_records_what_it_was_adapted_to(
    run: Run, common: list[object], pairs: Path, head_directory: Path, tmp_path: Path
) -> None:
    out = tmp_path / "adapted"
    assert run(*common, "--pairs", pairs, "--out", out) == 0
    base, head = Head.load(head_directory), Head.load(out)
    adaptation = head.spec.adaptation
    assert adaptation is not None
    assert adaptation.base == base.spec.sha256
    assert (adaptation.kind, adaptation.examples) == ("0/1 labels", 300)
    assert adaptation.held_out.after > adaptation.held_out.before
    assert head.spec.recipe == base.spec.recipe
    assert not head.spec.evaluation
    assert head.spec.recommended_metric == "centred"
    assert f"{adaptation.held_out.after:.2f}" in (out / CARD).read_text()
    assert sorted(path.name for path in out.iterdir()) == [CARD, "head.json", "head.safetensors"]


def test_same_seed_gives_the_same_bytes(
    run: Run, common: list[object], pairs: Path, tmp_path: Path
) -> None:
    heads = []
    for name in ("one", "two"):
        assert run(*common, "--pairs", pairs, "--out", tmp_path / name) == 0
        heads.append((tmp_path / name / "head.safetensors").read_bytes())
    assert heads[0] == heads[1]


def test_word_vectors_are_adapted_and_export(
    run: Run, static: list[object], pairs: Path, tmp_path: Path
) -> None:
    out = tmp_path / "adapted"
    assert run(*static, "--pairs", pairs, "--out", out) == 0
    head = Head.load(out)
    assert head.spec.adaptation is not None
    assert head.spec.adaptation.held_out.after > head.spec.adaptation.held_out.before + 5
    (artifact,) = assemble(out, Store(tmp_path / "store"), "mine", str(tmp_path / "vectors"))
    assert artifact.manifest.parity is not None


@pytest.mark.parametrize("kind", ["common", "static"])
def test_adapts_to_triplets(
    run: Run, kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(200):
        near, far = rng.choice(ANIMALS, 2, replace=False)
        rows.append([sentence(rng, subject) for subject in (near, near, far)])
    path = write(tmp_path / "triplets.csv", ("anchor", "positive", "negative"), rows)
    out = tmp_path / "adapted"
    assert run(*request.getfixturevalue(kind), "--triplets", path, "--out", out) == 0
    adaptation = Head.load(out).spec.adaptation
    assert adaptation is not None
    assert adaptation.kind == "triplets"
    assert adaptation.held_out.figure == "accuracy"
    assert adaptation.held_out.after > adaptation.held_out.before


def test_adapts_to_ratings(run: Run, common: list[object], tmp_path: Path) -> None:
    rows = [(a, b, 1 + 3 * label) for a, b, label in learnable(300)]
    path = write(tmp_path / "ratings.csv", ("left", "right", "score"), rows)
    options = ["--columns", "left,right,score", "--scale", "1,5", "--out", tmp_path / "adapted"]
    assert run(*common, "--pairs", path, *options) == 0
    adaptation = Head.load(tmp_path / "adapted").spec.adaptation
    assert adaptation is not None
    assert (adaptation.kind, adaptation.held_out.figure) == ("ratings", "Spearman")


@pytest.mark.parametrize("count", [20, 60])
def test_random_labels_change_nothing(
    run: Run, common: list[object], tmp_path: Path, count: int
) -> None:
    path = write(tmp_path / "random.csv", ("a", "b", "label"), random_labels(count))
    code = run(*common, "--pairs", path, "--out", tmp_path / "adapted")
    assert "No adaptation is better on held-out examples" in str(code)
    assert not (tmp_path / "adapted").exists()


def bad_inputs() -> dict[str, tuple[list[Sequence[object]], str]]:
    good: list[Sequence[object]] = list(learnable(30))
    first, second, label = learnable(30)[0]
    return {
        "one class": ([(a, b, 1) for a, b, _ in good], "0 of 30 labels in"),
        "contradiction": ([*good, (second, first, 1 - label)], "same pair"),
        "few": (good[:5], "There are 5 labels in"),
        "empty": ([*good, ("a man", " ", 1)], "row 31: the second sentence is empty"),
        "scale": ([*good, ("a man", "a dog", 7)], "label 7 is neither 0 nor 1"),
        "text": ([*good, ("a man", "a dog", "yes")], "label 'yes' is not a number"),
    }


@pytest.mark.parametrize("problem", bad_inputs())
def test_bad_labels_are_named_and_nothing_is_written(
    run: Run, common: list[object], tmp_path: Path, problem: str
) -> None:
    rows, message = bad_inputs()[problem]
    path = write(tmp_path / "pairs.csv", ("a", "b", "label"), rows)
    before = {*tmp_path.iterdir()}
    assert message in str(run(*common, "--pairs", path, "--out", tmp_path / "adapted"))
    assert {*tmp_path.iterdir()} == before


def test_label_outside_the_given_scale_is_rejected(
    run: Run, common: list[object], tmp_path: Path
) -> None:
    path = write(tmp_path / "p.csv", ("a", "b", "label"), [("a man", "a dog", 6)] * 30)
    code = run(*common, "--pairs", path, "--scale", "0,5", "--out", tmp_path / "adapted")
    assert "label 6 is outside the scale from 0 to 5" in str(code)


def test_existing_head_is_not_replaced(
    run: Run, common: list[object], pairs: Path, head_directory: Path
) -> None:
    before = (head_directory / "head.json").read_bytes()
    code = run(*common, "--pairs", pairs, "--out", head_directory)
    assert "is not an empty directory" in str(code)
    assert (head_directory / "head.json").read_bytes() == before


@pytest.mark.parametrize("options", [[], ["--pairs", "p.csv", "--triplets", "t.csv"]])
def test_needs_pairs_or_triplets(run: Run, common: list[object], options: list[str]) -> None:
    assert "Pass either --pairs or --triplets." in str(run(*common, *options, "--out", "x"))


def test_reports_on_dev_pairs_without_those_of_the_labels(
    run: Run,
    common: list[object],
    pairs: Path,
    dev: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    other = [*learnable(40, seed=11), learnable(1)[0]]
    others = write(tmp_path / "others.csv", ("a", "b", "label"), other)
    out = tmp_path / "adapted"
    options = ["--dev", dev, "--dev", others, "--max-loss", 100, "--out", out]
    assert run(*common, "--pairs", pairs, *options) == 0
    spec = json.loads((out / "head.json").read_text())
    figures = spec["adaptation"]["dev"]
    assert figures["stsb-dev"]["figure"] == "Spearman"
    known = {text for a, b, _ in learnable(300) for text in (a, b)}
    shared = sum(not known.isdisjoint(row[:2]) for row in other)
    assert shared >= 1
    assert figures["others.csv"]["figure"] == "AUC"
    assert figures["others.csv"]["examples"] == len(other) - shared
    printed = capsys.readouterr().out
    assert "stsb-dev" in printed
    assert f"others.csv: {shared} pairs share a sentence with the labels" in printed


def test_loss_on_dev_pairs_is_refused_beyond_the_limit(
    run: Run, common: list[object], pairs: Path, tmp_path: Path
) -> None:
    # The opposite of what the labels say: what is gained on one is lost on the other.
    opposite = [(a, b, 1 - label) for a, b, label in learnable(200, seed=5)]
    path = write(tmp_path / "opposite.csv", ("a", "b", "label"), opposite)
    code = run(*common, "--pairs", pairs, "--dev", path, "--out", tmp_path / "adapted")
    assert "loses more than 1 points on opposite.csv" in str(code)
    assert not (tmp_path / "adapted").exists()


def test_shipped_heads_are_known_by_name() -> None:
    from training.adapt.commands import head_directory

    assert Head.load(head_directory("default")).spec.backbone.name == "all-MiniLM-L6-v2"
    assert head_directory("heads/mine") == Path("heads/mine")
