import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from lattemix.build.backbones import BackboneError, Checkpoint, open_backbone
from lattemix.build.backbones.checkpoint import SAFETENSORS
from model_store import LatteMixError
from model_store.manifest import TOKENIZER
from tests.tiny import SENTENCES, write_static
from tests.training.conftest import Run
from training.backbones import load
from training.corpus import CorpusError
from training.paper.finetune import PairClassifier, Settings, finetune, measure, train
from training.paper.nli import LABELS, NliCorpus, Pair

# The first word of the hypothesis determines the label.
HYPOTHESES = ("nobody likes coffee", "someone is having lunch", "two women are talking")
PAIRS = [Pair(premise, HYPOTHESES[label], label) for premise in SENTENCES for label in range(3)]
CORPUS = NliCorpus(PAIRS, unlabelled=0, excluded=0)
FAST = Settings(epochs=8, batch=6, learning_rate=1e-2)


def silent(message: str) -> None:
    pass


@pytest.fixture
def snli(tmp_path: Path) -> Path:
    path = tmp_path / "snli.jsonl"
    records = [
        {"gold_label": LABELS[label], "sentence1": a, "sentence2": b} for a, b, label in PAIRS
    ]
    path.write_text("\n".join(map(json.dumps, records)))
    return path


def test_learns_separable_labels(checkpoint: Checkpoint) -> None:
    torch.manual_seed(0)
    model = PairClassifier(checkpoint)
    assert measure(model, PAIRS, 16) < 0.7
    first_loss, _ = train(model, PAIRS, Settings(batch=6, learning_rate=0))
    train(model, PAIRS, FAST)
    last_loss, accuracy = train(model, PAIRS, Settings(batch=6, learning_rate=0))
    assert last_loss < first_loss / 2
    assert accuracy > 0.9
    assert measure(model, PAIRS, 16) > 0.95


def test_pools_by_the_mean_of_all_tokens(checkpoint: Checkpoint) -> None:
    model = PairClassifier(checkpoint).eval()
    tokens = load(checkpoint, 32).encode(SENTENCES[:3])
    ends = np.cumsum(tokens.lengths)
    means = [part.mean(axis=0) for part in np.split(tokens.vectors, ends[:-1])]
    with torch.inference_mode():
        np.testing.assert_allclose(model._mean(SENTENCES[:3]), means, atol=1e-5)


def test_writes_a_backbone_with_the_tensors_of_its_source(
    backbone: Path, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    out = tmp_path / "new" / "out"
    finetune(str(backbone), CORPUS, out, FAST, notify=silent)
    source = checkpoint.tensors()
    with open_backbone(str(out)) as result:
        assert result.config == checkpoint.config
        assert result.tokenizer.read_bytes() == (backbone / TOKENIZER).read_bytes()
        weights = result.tensors()
        assert {n: w.shape for n, w in weights.items()} == {n: w.shape for n, w in source.items()}
        assert all(not np.array_equal(weights[name], source[name]) for name in source)
        vectors = load(result, 16).encode(SENTENCES).vectors
    assert np.isfinite(vectors).all()
    assert [path.name for path in out.parent.iterdir()] == ["out"]


def test_accepts_a_bfloat16_backbone_with_a_task_head(
    backbone: Path, checkpoint: Checkpoint, tmp_path: Path
) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(backbone, source)
    weights = {f"bert.{n}": torch.tensor(w).bfloat16() for n, w in checkpoint.tensors().items()}
    save_file({**weights, "head.bias": torch.ones(2)}, source / SAFETENSORS, {"format": "pt"})
    finetune(str(source), CORPUS, out, Settings(), notify=silent)
    assert Checkpoint.read(out).tensors().keys() == checkpoint.tensors().keys()


def test_result_depends_on_the_seed_alone(backbone: Path, tmp_path: Path) -> None:
    digests = []
    for index, seed in enumerate((0, 0, 1)):
        torch.rand(index)  # the state of the global generator must not matter
        finetune(str(backbone), CORPUS, tmp_path / str(index), Settings(seed=seed), notify=silent)
        digests.append(Checkpoint.read(tmp_path / str(index)).sha256)
    assert digests[0] == digests[1] != digests[2]


def test_does_not_train_on_held_out_pairs(backbone: Path, tmp_path: Path) -> None:
    messages: list[str] = []
    finetune(str(backbone), CORPUS, tmp_path / "all", Settings(), 6, messages.append)
    fewer = NliCorpus(PAIRS[:-6], 0, 0)
    finetune(str(backbone), fewer, tmp_path / "fewer", Settings(), notify=silent)
    assert messages[-1].startswith("Accuracy on 6 held-out pairs: ")
    digests = [Checkpoint.read(tmp_path / name).sha256 for name in ("all", "fewer")]
    assert digests[0] == digests[1]


def test_rejects_a_corpus_without_pairs_to_train_on(backbone: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with pytest.raises(CorpusError, match="No pairs are left to train on, with 0 held out: 0 lab"):
        finetune(str(backbone), NliCorpus([], 0, 0), out, FAST)
    with pytest.raises(CorpusError, match="with 30 held out: 30 labelled pairs"):
        finetune(str(backbone), CORPUS, out, FAST, held_out=30)
    assert not out.exists()


def test_rejects_static_vectors(tmp_path: Path) -> None:
    write_static(tmp_path / "words", tmp_path / "head")
    with pytest.raises(BackboneError, match="words is a table of static vectors: only a transfor"):
        finetune(str(tmp_path / "words"), CORPUS, tmp_path / "new" / "out", FAST)
    assert not (tmp_path / "new").exists()


def test_rejects_a_diverging_run(backbone: Path, tmp_path: Path) -> None:
    settings = Settings(batch=6, learning_rate=float("nan"))
    with pytest.raises(LatteMixError, match="The loss is nan: lower --learning-rate"):
        finetune(str(backbone), CORPUS, tmp_path / "out", settings)
    assert not (tmp_path / "out").exists()


def test_command_counts_excluded_pairs(
    run: Run, backbone: Path, snli: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "excluded.txt").write_text("A man is eating!\n")
    out = tmp_path / "out"
    arguments = ["finetune", "--backbone", backbone, "--corpus", snli, "--out", out]
    assert run(*arguments, "--exclude", tmp_path / "excluded.txt", "--held-out", 3) == 0
    err = capsys.readouterr().err
    assert "27 labelled pairs; 0 without a gold label and 3 with an evaluation sentence" in err
    assert "Accuracy on 3 held-out pairs" in err
    assert f"Wrote the backbone to {out}." in err
    message = f"lattemix-train: {out} is not an empty directory: remove it or pass another --out."
    assert run(*arguments) == message
