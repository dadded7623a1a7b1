import csv
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from model_store import LatteMixError
from tests.tiny import SENTENCES
from tests.training.evaluate.conftest import write_benchmarks
from training import cli
from training.cache import VectorCache
from training.evaluate.evaluation import Evaluation
from training.evaluate.words import measure_words
from training.paper import cells
from training.paper.published import PublishedTable
from training.paper.reproduce import Reproduction
from training.recipe import Recipe


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_benchmarks(tmp_path / "data")


Reproduce = Callable[..., Reproduction]


@pytest.fixture
def corpus(data: Path) -> Path:
    """Sentences to train on; the evaluation sentences among them are dropped."""
    path = data.parent / "corpus.txt"
    path.write_text("\n".join([*SENTENCES, *(f"{text} again" for text in SENTENCES)]))
    return path


@pytest.fixture
def reproduce(data: Path, corpus: Path, cache: VectorCache, recipe: Recipe) -> Reproduce:
    def make(
        table: str, recipe: Recipe = recipe, seeds: int = 2, **backbones: Path
    ) -> Reproduction:
        return Reproduction(
            PublishedTable.load(table),
            data.parent / "out",
            data,
            [corpus],
            {name.replace("_", "-"): str(path) for name, path in backbones.items()},
            recipe.model_copy(update={"steps": 2}),
            cache,
            seeds,
        )

    return make


def silence(message: str) -> None:
    pass


def test_compares_with_the_paper(
    reproduce: Reproduce, data: Path, cache: VectorCache, backbone: Path
) -> None:
    reproduction = reproduce("vae", BERT_Base=backbone)
    comparison = reproduction.run(silence)
    table, controls = comparison.tables()
    assert table.columns == controls.columns == ["sick-r", "stsb", "average"]
    assert len(table.rows) == 10 + 1  # and the agreement of their order
    rows = {row[0]: row[1:] for row in table.rows}
    pooled = rows[f"BERT-Base + Mean + Cosine ({backbone.name})"]
    trained = rows[f"Latte-Mix (2-layer) + Cosine ({backbone.name})"]
    assert all(cell.count("±") == 0 for cell in pooled)
    assert trained[1].count("±") == 1
    assert trained[1].endswith(" / 45.22")
    control_rows = [row[0] for row in controls.rows]
    assert control_rows[0] == "BERT-Base + Centred mean + Cosine"
    assert "Latte-Mix (2-layer) + Cosine, untrained encoder" in control_rows
    by_hand = Evaluation([data], ["stsb"], cache, backbone=str(backbone)).run()
    (expected,) = by_hand.values(("pooling", "mean"), "stsb")
    assert float(pooled[1].split(" / ")[0]) == pytest.approx(expected, abs=0.1)  # 16 tokens or 32


def test_trains_each_cell_once(
    reproduce: Reproduce, recipe: Recipe, backbone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = []
    make = cells.make_head

    def counted(*arguments: object, **options: object) -> object:
        trained.append(arguments[1])
        return make(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(cells, "make_head", counted)
    paper = recipe.model_copy(update={"classes": 20, "latent_dims": 16, "temperature": 0.3})
    reproduction = reproduce("hyperparameters", paper, 1, BERT_Base=backbone)
    first = reproduction.run(silence)
    # 3 AE, 3 Normal, 3 depths, 4 numbers of classes, of dims, 4 temperatures; the defaults once.
    assert len(trained) == 3 + 3 + 3 + 3 + 3 + 3
    assert first.left_out[0].startswith("sts12: ")
    again = reproduce("hyperparameters", paper, 1, BERT_Base=backbone)
    assert again.run(silence).values == first.values
    assert len(trained) == 18
    (out,) = {path.parent.parent for path in reproduction.out.glob("cells/*/scores.json")}
    next(out.glob("*/scores.json")).write_text("{")  # damaged: scored again with the same head
    assert again.run(silence).values == first.values
    assert len(trained) == 18


def test_resumes_an_interrupted_run(
    reproduce: Reproduce, backbone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = []
    score = cells.head_scores

    def interrupted(*arguments: object) -> object:
        done.append(arguments)
        if len(done) == 5:
            raise KeyboardInterrupt
        return score(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(cells, "head_scores", interrupted)
    reproduction = reproduce("vae", BERT_Base=backbone)
    with pytest.raises(KeyboardInterrupt):
        reproduction.run(silence)
    comparison = reproduction.run(silence)
    # Each head and its control on each of two sets, and the one interrupted.
    assert len(done) == 9 * 2 * 2 * 2 + 1
    assert len(comparison.values) == 10 * 2


def test_changed_data_is_scored_again(reproduce: Reproduce, data: Path, backbone: Path) -> None:
    reproduction = reproduce("pooling", BERT_Base=backbone)
    before = reproduction.run(silence)
    path = data / "stsbenchmark" / "sts-test.csv"
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[:-2]) + "\n")
    after = reproduction.run(silence)
    name = "BERT-Base + Mean + Cosine"
    assert after.values[name, "sick-r"] == before.values[name, "sick-r"]
    assert after.values[name, "stsb"] != before.values[name, "stsb"]


def test_notes_missing_backbones(reproduce: Reproduce, backbone: Path) -> None:
    reproduction = reproduce("pooling", BERT_Base=backbone, GloVe=Path("none.txt"))
    comparison = reproduction.run(silence)
    assert {row.backbone for row in comparison.rows} == {"BERT-Base"}
    assert comparison.left_out[0].startswith("GloVe: There is no backbone 'none.txt'")
    assert comparison.left_out[1] == (
        "BERT-Large: no source. Pass --backbone BERT-Large=google-bert/bert-large-uncased, or a "
        "substitute."
    )
    nothing = reproduce("pooling")
    with pytest.raises(LatteMixError, match="GloVe: no source"):
        nothing.run(silence)


def test_notes_missing_layers(reproduce: Reproduce, backbone: Path) -> None:
    reproduction = reproduce("layers-base", BERT_Base=backbone)
    comparison = reproduction.run(silence)
    assert {row.layer for row in comparison.rows} == {1, 2}
    absent = [note for note in comparison.left_out if "so there is no layer 3" in note]
    assert len(absent) == 2  # of mean pooling and of Latte-Mix
    # STS13 is counted with SMT, as the paper must have.
    assert ("BERT-Base, Layer 1 + Mean + Cosine", "sts13") in comparison.values


def test_reproduces_word_benchmarks(
    reproduce: Reproduce,
    data: Path,
    cache: VectorCache,
    backbone: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reproduction = reproduce("words-base", BERT_Base=backbone)
    comparison = reproduction.run(silence)
    assert {row.layer for row in comparison.rows} == {1, 2}
    assert comparison.columns == ["simlex999"]
    assert comparison.paper(comparison.rows[0], "simlex999").mean == 34.85
    expected = measure_words(str(backbone), [1, 2], data, cache).scores
    for row in comparison.rows:
        score = expected[row.layer or 0]["simlex999"].value
        assert comparison.values[row.name, "simlex999"] == [pytest.approx(score, abs=1)]
    monkeypatch.setattr(cells, "embed_words", None)  # everything is read from disk
    assert reproduction.run(silence).values == comparison.values


def test_rejects_an_unknown_backbone_and_a_missing_corpus(
    reproduce: Reproduce, backbone: Path
) -> None:
    with pytest.raises(LatteMixError, match="The paper has no backbone 'ELMo': choose among GloVe"):
        reproduce("vae", ELMo=backbone)
    reproduction = reproduce("vae", BERT_Base=backbone)
    without = Reproduction(**{**vars(reproduction), "corpus": []})
    with pytest.raises(LatteMixError, match="needs trained heads: give --corpus"):
        without.run(silence)


def test_reproduce_command(
    data: Path,
    corpus: Path,
    recipe: Recipe,
    backbone: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = tmp_path / "small.toml"
    small.write_text("latent_dims = 4\nclasses = 5\nsteps = 5\nmax_tokens = 16\n")
    out = tmp_path / "report"
    options = ["--data", data, "--corpus", corpus, "--recipe", small, "--out", out, "--seeds", 1]
    options += ["--backbone", f"BERT-Base={backbone}", "--cache", tmp_path / "cache"]
    monkeypatch.setattr(
        sys, "argv", ["lattemix-train", "reproduce", "layers-base", *map(str, options)]
    )
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 0
    printed = capsys.readouterr().out
    assert printed.strip() == (out / "report.md").read_text().strip()
    with (out / "report.csv").open() as file:
        records = list(csv.DictReader(file))
    assert {record["source"] for record in records} == {str(backbone)}
    results = json.loads((out / "report.json").read_text())["results"]
    assert len(results) == len(records) == 4 * 4  # four rows; three sets and their average
    assert (out / "layers.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("given", ["BERT-Base", "=x", "BERT-Base="])
def test_rejects_a_backbone_without_name_or_source(
    given: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ["--data", tmp_path, "--out", tmp_path / "out", "--backbone", given]
    monkeypatch.setattr(sys, "argv", ["lattemix-train", "reproduce", "vae", *map(str, options)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert "--backbone takes NAME=SOURCE" in str(stopped.value.code)


def test_drops_evaluation_sentences_and_says_so(
    reproduce: Reproduce, corpus: Path, backbone: Path
) -> None:
    messages: list[str] = []
    reproduce("vae", seeds=1, BERT_Base=backbone).run(messages.append)
    assert messages[1] == f"Evaluation sentences dropped from the corpus: {len(SENTENCES)}."


def test_computes_the_requested_sets(reproduce: Reproduce, backbone: Path) -> None:
    reproduction = replace(reproduce("vae", seeds=1, BERT_Base=backbone), sets=["stsb"])
    assert reproduction.run(silence).sets == ["stsb"]
    with pytest.raises(LatteMixError, match="has no set 'sts12': choose among sick-r, stsb"):
        replace(reproduction, sets=["sts12"])
