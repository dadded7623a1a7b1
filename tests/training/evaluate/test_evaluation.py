import dataclasses
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from lattemix.build.backbones.hub import HubError
from lattemix.build.head import Head
from model_store import LatteMixError, Store
from tests.tiny import SENTENCES
from training import cli
from training.cache import VectorCache
from training.encoding import EncodedCorpus
from training.evaluate.evaluation import Evaluation
from training.heads import make_head
from training.recipe import Recipe


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    monkeypatch.setattr(sys, "argv", ["lattemix-train", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code


def test_evaluate_command_with_heads_controls_and_model(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    encoded: EncodedCorpus,
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
    original = (head_directory / "head.json").read_bytes()
    options = ["--head", head_directory, "--head", tmp_path / "second", "--data", data]
    options += ["--sets", "stsb-dev,sts13,sick-r", "--model", "tiny", "--store", store.root]
    options += ["--backbone", backbone, "--corpus", corpus, "--cache", tmp_path / "cache"]
    options += ["--controls", "--out", tmp_path / "report", "--record"]
    assert run(monkeypatch, "evaluate", *options) == 0
    out = capsys.readouterr().out
    tables = {part.split("\n")[0]: _rows(part) for part in _parts(out)}
    rows = tables["Spearman x100"]
    assert len(rows) == 4 + 5 + 5 + 5  # poolings, and every metric of heads, controls and served
    assert rows["mixture, js"].count("±") == rows["random encoder, centred"].count("±") == 4
    assert rows["served, js"].count("±") == rows["pooling, mean"].count("±") == 0
    stsb, year, sick, average = map(float, rows["served, js"].split(" | "))
    assert average == pytest.approx((year + sick) / 2, abs=0.01)  # without the development set
    title = "Differences in Spearman x100, 95 % paired bootstrap (first seeds only)"
    differences = tables[title]
    assert len(differences) == 5 + 2  # each metric and the mean, the recommended and two controls
    assert tables.keys() >= {"Pearson x100", "Spearman x100, weighted mean over subsets"}
    recorded = Head.load(head_directory).spec.evaluation
    assert (recorded["stsb-dev/js"], recorded["sick-r/js"]) == (stsb, sick)
    (head_directory / "head.json").write_bytes(original)
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    (mean,) = (
        record["mean"]
        for record in report["results"]
        if (record["aggregation"], record["metric"], record["set"]) == ("served", "js", "sick-r")
        and (record["statistic"], record["over"]) == ("spearman", "all")
    )
    assert mean == pytest.approx(sick, abs=0.01)
    assert "line 5: no score" in report["left_out"][0]
    for plot in ("scatter.png", "differences.png"):
        assert (tmp_path / "report" / plot).read_bytes().startswith(b"\x89PNG")


def _parts(out: str) -> list[str]:
    """The report's tables, each with its title."""
    blocks = out.strip().split("\n\n")
    return [f"{title}\n{table}" for title, table in zip(blocks[::2], blocks[1::2], strict=True)]


def _rows(part: str) -> dict[str, str]:
    lines = [line for line in part.splitlines()[3:] if line.startswith("|")]
    return dict(line.strip("| ").split(" | ", 1) for line in lines)


@pytest.mark.parametrize(("model", "metric"), [("normal", "l2"), ("autoencoder", "cosine")])
def test_evaluates_baseline_heads(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    encoded: EncodedCorpus,
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
    assert "|  | stsb-dev |" in out  # named by its file
    assert f"| mixture, {metric} |" in out


def test_rejects_a_head_the_model_was_not_made_with(
    monkeypatch: pytest.MonkeyPatch, store: Store, data: Path, tmp_path: Path, head: Head
) -> None:
    other = dataclasses.replace(head, tensors={**head.tensors, "mean": head.tensors["mean"] + 1})
    other.save(tmp_path / "other")
    options = ["--model", "tiny", "--store", store.root, "--head", tmp_path / "other", "--record"]
    code = run(monkeypatch, "evaluate", "--data", data, *options)
    assert "The model 'tiny' was assembled from another head" in str(code)
    assert Head.load(tmp_path / "other").spec.evaluation == {}


def test_evaluates_the_poolings_of_a_backbone(
    backbone: Path, data: Path, cache: VectorCache
) -> None:
    report = Evaluation([data], ["stsb"], cache, backbone=str(backbone), layer=1).run()
    assert set(report.scores) == {("pooling", name) for name in ("mean", "max", "cls")}
    last = Evaluation([data], ["stsb"], cache, backbone=str(backbone)).run()
    mean = ("pooling", "mean")
    assert not np.allclose(report.scores[mean]["stsb"], last.scores[mean]["stsb"], atol=1e-7)


def unreachable(repository: str) -> Path:
    raise HubError(f"Cannot download {repository!r} from the hub: offline.")


def test_evaluates_a_model_without_its_head_and_backbone(
    data: Path, cache: VectorCache, store: Store, backbone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = store.open("tiny")
    monkeypatch.chdir(data)  # where no backbone of that name is
    monkeypatch.setattr("lattemix.build.backbones.hub.download", unreachable)
    report = Evaluation([data], ["stsb"], cache, model=artifact).run()
    assert {aggregation for aggregation, _ in report.scores} == {"served"}
    assert report.left_out[0].startswith("poolings: Cannot download 'tiny-bert0' from the hub")
    both = Evaluation([data], ["stsb"], cache, model=artifact, backbone=str(backbone)).run()
    assert {aggregation for aggregation, _ in both.scores} == {"pooling", "served"}
    assert (("served", "js"), ("pooling", "mean")) in both.compared()
    assert both.values(("served", "js"), "stsb") == report.values(("served", "js"), "stsb")


def test_evaluates_on_a_folder_and_a_file(
    backbone: Path, data: Path, cache: VectorCache, tmp_path: Path
) -> None:
    file = tmp_path / "mine.tsv"
    rows = [f"{i}\t{SENTENCES[i]}\t{SENTENCES[i + 1]}" for i in range(9)]
    file.write_text("\n".join(rows))
    report = Evaluation([data, file], ["stsb-dev"], cache, backbone=str(backbone)).run()
    assert report.names == ["stsb-dev", "mine"]


def test_rejects_a_backbone_that_is_not_the_models(
    backbone: Path, data: Path, cache: VectorCache, store: Store, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(backbone, other)
    weights = load_file(other / "model.safetensors")
    save_file({name: value + 1 for name, value in weights.items()}, other / "model.safetensors")
    evaluation = Evaluation([data], ["stsb"], cache, model=store.open("tiny"), backbone=str(other))
    with pytest.raises(LatteMixError, match=r"trained on .* with weights of SHA-256"):
        evaluation.run()


def test_rejects_heads_that_differ_in_more_than_their_seed(
    encoded: EncodedCorpus,
    recipe: Recipe,
    head_directory: Path,
    data: Path,
    tmp_path: Path,
    cache: VectorCache,
) -> None:
    other = recipe.model_copy(update={"steps": 31, "seed": 1})
    make_head(encoded, other, "x", progress=False).save(tmp_path / "other")
    evaluation = Evaluation([data], ["stsb"], cache, heads=[head_directory, tmp_path / "other"])
    with pytest.raises(LatteMixError, match="these differ in steps: evaluate each by itself"):
        evaluation.run()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--controls"], "--controls needs a head"),
        (["--record"], "--record stores scores in a head"),
    ],
)
def test_rejects_options_that_need_a_head(
    monkeypatch: pytest.MonkeyPatch, data: Path, backbone: Path, options: list[str], message: str
) -> None:
    code = run(monkeypatch, "evaluate", "--data", data, "--backbone", backbone, *options)
    assert message in str(code)


def test_rejects_layer_with_a_head(
    monkeypatch: pytest.MonkeyPatch, data: Path, head_directory: Path
) -> None:
    code = run(monkeypatch, "evaluate", "--data", data, "--head", head_directory, "--layer", 1)
    assert "--layer is for a backbone alone" in str(code)


def test_evaluates_a_shipped_model_without_its_backbone(
    data: Path,
    cache: VectorCache,
    store: Store,
    head_directory: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shutil.copytree(head_directory, tmp_path / "heads" / "tiny")
    monkeypatch.setattr("training.evaluate.evaluation.HEADS", tmp_path / "heads")
    monkeypatch.chdir(tmp_path)
    report = Evaluation([data], ["stsb"], cache, model=store.open("tiny")).run()
    assert {aggregation for aggregation, _ in report.scores} == {"served"}
