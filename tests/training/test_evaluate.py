import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

from app.engine import Encoder
from model_store import LatteMixError, Store
from tests.conftest import SENTENCES
from training import cli
from training.backbones.sources import Checkpoint
from training.backbones.transformer import Transformer
from training.evaluate import sts
from training.head import Head


@pytest.fixture
def stsb(tmp_path: Path) -> Path:
    """A file in the benchmark's layout; a quote is text there, not quoting."""
    rows = [
        ("main", "set", "year", str(i), f"{(i * 7) % 5}.0", SENTENCES[i], SENTENCES[(i + 3) % 10])
        for i in range(10)
    ]
    path = tmp_path / "sts-dev.csv"
    path.write_text("\n".join("\t".join(row) for row in rows).replace("a child", '"a child') + "\n")
    return path


def test_reading_the_benchmark(stsb: Path) -> None:
    pairs = sts.read_stsb(stsb)
    assert len(pairs.a) == len(pairs.b) == 10
    assert pairs.gold[:3] == [0, 2, 4]
    assert pairs.a[7].startswith('"a child')


@pytest.mark.parametrize("line", ["too\tfew", "a\tb\tc\td\tscore\te\tf"])
def test_a_bad_row_is_named_by_file_and_line(stsb: Path, line: str) -> None:
    stsb.write_text(stsb.read_text() + line + "\n")
    with pytest.raises(LatteMixError, match=r"sts-dev\.csv, line 11: expected a score and two"):
        sts.read_stsb(stsb)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(LatteMixError, match=r"Cannot read .*none: No such file"):
        sts.read_stsb(tmp_path / "none")


def test_spearman_is_of_ranks() -> None:
    assert sts.spearman(np.array([1.0, 10.0, 100.0]), [1, 2, 3]) == 100
    assert sts.spearman(np.array([3.0, 2.0, 1.0]), [1, 2, 3]) == -100


def test_the_control_differs_from_the_head_only_in_its_encoder(head: Head) -> None:
    control = sts.random_control(head)
    np.testing.assert_array_equal(control.tensors["mean"], head.tensors["mean"])
    weight, trained = control.encoder[0][0], head.encoder[0][0]
    assert weight.shape == trained.shape
    assert not np.allclose(weight, trained)
    assert abs(weight).max() <= 1 / np.sqrt(16)
    assert "centre" not in control.tensors
    np.testing.assert_array_equal(sts.random_control(head).encoder[0][0], weight)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    monkeypatch.setattr(sys, "argv", ["lattemix-train", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code


def test_from_corpus_to_evaluation_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    backbone: Path,
    corpus: Path,
    stsb: Path,
    tmp_path: Path,
) -> None:
    head, store = tmp_path / "heads" / "mine", tmp_path / "store"
    source = ["--backbone", backbone]
    options = ["--latent-dims", 4, "--classes", 5, "--steps", 20, "--seed", 3, "--max-tokens", 16]
    assert run(monkeypatch, "train", "--corpus", corpus, "--out", head, *source, *options) == 0
    assert Head.load(head).spec.recipe["seed"] == 3

    assert run(monkeypatch, "export", "--head", head, "--store", store, *source) == 0
    assert Store(store).open("mine").manifest.latent_dims == 4

    capsys.readouterr()
    rest = ["--model", "mine", "--head", head, "--store", store, "--corpus", corpus, *source]
    assert run(monkeypatch, "evaluate", "--stsb", stsb, "--record", *rest) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Spearman x100 on 10 pairs of sts-dev.csv"
    assert len(lines) == 1 + 4 + 5 + 5  # title, poolings, served metrics, the control's
    recorded = Head.load(head).spec.evaluation
    assert set(recorded) == {f"sts-dev/{metric}" for metric in sts.METRICS}
    served = next(line for line in lines if line.startswith("mixture, served (mine)"))
    assert float(served.split()[-1]) == recorded["sts-dev/cosine"]


def test_scores_of_another_model_are_not_recorded(
    monkeypatch: pytest.MonkeyPatch,
    store: Store,
    backbone: Path,
    stsb: Path,
    tmp_path: Path,
    head: Head,
) -> None:
    other = dataclasses.replace(head, tensors={**head.tensors, "mean": head.tensors["mean"] + 1})
    other.save(tmp_path / "other")
    options = ["--model", "tiny", "--store", store.root, "--backbone", backbone, "--record"]
    code = run(monkeypatch, "evaluate", "--stsb", stsb, "--head", tmp_path / "other", *options)
    assert "The model 'tiny' was not made with this head" in str(code)
    assert Head.load(tmp_path / "other").spec.evaluation == {}


def test_a_file_in_the_heads_place_is_found_before_training(
    monkeypatch: pytest.MonkeyPatch, corpus: Path, backbone: Path
) -> None:
    code = run(monkeypatch, "train", "--corpus", corpus, "--out", corpus, "--backbone", backbone)
    assert "is a file: a head is a directory" in str(code)


def test_what_was_trained_and_what_is_served_score_the_same(
    head: Head, stsb: Path, checkpoint: Checkpoint, encoder: Encoder
) -> None:
    pairs = sts.read_stsb(stsb)
    backbone = Transformer(checkpoint, head.spec.max_tokens)
    a, b = ([v.numpy() for v in backbone.token_vectors(texts)] for texts in (pairs.a, pairs.b))
    trained = sts.mixture_scores(head, a, b, pairs.gold)
    left, right = encoder.encode(pairs.a).mixtures, encoder.encode(pairs.b).mixtures
    assert sts.served_scores(left, right, encoder.centre, pairs.gold) == trained


def test_a_failure_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = run(
        monkeypatch, "train", "--corpus", tmp_path / "none", "--out", tmp_path, "--backbone", "x"
    )
    assert str(code).startswith("lattemix-train: There is no backbone 'x'")
