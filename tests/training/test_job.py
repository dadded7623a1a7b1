import io
import json
import os
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from lattemix.build.backbones import BackboneError
from lattemix.build.families import ExportError
from lattemix.build.head import Head
from lattemix.build.network import build_model
from model_store import Store
from tests.tiny import SENTENCES
from tests.training.conftest import Run, settings
from training import cli
from training.encoding import EncodedCorpus
from training.heads import make_head
from training.recipe import Recipe

ROOT = Path(cli.__file__).parent.parent


def log(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def head_bytes(out: Path) -> bytes:
    return (out / "head.safetensors").read_bytes() + (out / "head.json").read_bytes()


def test_writes_head_card_log_and_report(
    run: Run,
    arguments: list[str],
    dev: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "heads" / "mine"
    about = ["--about", "Ten sentences", "--licence", "CC0", "--dev", dev, "--seed", 3]
    assert run(*arguments, "--steps", 20, "--out", out, *about) == 0
    files = {"head.json", "head.safetensors", "README.md", "log.jsonl", "latents.json"}
    assert {path.name for path in out.iterdir()} == files | {"report.html"}
    spec = Head.load(out).spec
    assert (spec.recipe["seed"], spec.recipe["steps"], spec.corpus) == (3, 20, "Ten sentences")
    assert spec.training["sentences"] == 10
    assert "sentences_excluded" not in spec.training
    assert [entry["step"] for entry in log(out)] == [0, 19]
    assert log(out)[-1]["kl"] == spec.training["kl"]
    card = (out / "README.md").read_text()
    for part in ("# mine", "Ten sentences. Licence of the data: CC0", "| seed | 3 |"):
        assert part in card
    for row in ("pooling, mean", "pooling, centred mean", "mixture, js", "random encoder, centred"):
        assert f"| {row} |" in card


def test_dev_and_tensorboard_do_not_change_the_head(
    run: Run, arguments: list[str], dev: Path, tmp_path: Path
) -> None:
    plain, watched = tmp_path / "plain", tmp_path / "watched"
    arguments += ["--steps", "21"]
    assert run(*arguments, "--out", plain) == 0
    assert run(*arguments, "--out", watched, "--dev", dev, "--tensorboard") == 0
    assert head_bytes(plain) == head_bytes(watched)
    assert "dev" not in log(plain)[-1]
    assert "dev" in log(watched)[-1]
    assert not (plain / "tensorboard").exists()
    (old,) = (watched / "tensorboard").glob("events.*")
    assert run(*arguments, "--out", watched, "--tensorboard", "--restart") == 0
    (new,) = (watched / "tensorboard").glob("events.*")
    assert old != new


@pytest.mark.parametrize(
    ("changes", "metric"),
    [
        ({}, "centred"),
        ({"metric": "js"}, "js"),
        ({"token_weighting": "sif"}, "centred"),
        ({"encoder": "free"}, "centred"),
        ({"encoder": "free", "model": "normal"}, "l2"),
        ({"encoder": "free", "model": "autoencoder"}, "cosine"),
    ],
)
def test_last_dev_score_equals_the_evaluation_of_the_head(
    run: Run,
    arguments: list[str],
    dev: Path,
    tmp_path: Path,
    changes: dict[str, str],
    metric: str,
) -> None:
    arguments += ["--steps", "2", "--out", str(tmp_path), "--dev", str(dev), *settings(**changes)]
    assert run(*arguments) == 0
    row = re.search(rf"\| mixture, {metric} \| (\S+) \|", (tmp_path / "README.md").read_text())
    assert row is not None
    assert log(tmp_path)[-1]["dev"] == pytest.approx(float(row[1]), abs=0.02)
    assert f"mixture, {metric}</th><td>{row[1]}</td>" in (tmp_path / "report.html").read_text()


def test_warns_when_the_latent_has_collapsed(
    run: Run, capsys: pytest.CaptureFixture[str], arguments: list[str], tmp_path: Path
) -> None:
    # Without free bits, 32 latent dims cost more KL than they save in reconstruction.
    changes = settings(
        encoder="free",
        latent_dims=32,
        learning_rate=5e-3,
        normalisation="centre",
        free_bits=0,
        beta_schedule="constant",
    )
    assert run(*arguments, "--out", tmp_path / "out", "--steps", 150, *changes) == 0
    output = capsys.readouterr().err
    warning = r"Warning: the latent collapsed. At the end only \d+ of 32 latent dims carry info"
    assert re.search(warning, output)
    assert re.search(warning, (tmp_path / "out" / "report.html").read_text())
    assert run(*arguments, "--out", tmp_path / "sound", "--steps", 5) == 0
    assert "Warning" not in capsys.readouterr().err


def test_does_not_overwrite_a_finished_head_without_restart(
    run: Run, arguments: list[str], tmp_path: Path
) -> None:
    arguments += ["--steps", "2", "--out", str(tmp_path)]
    assert run(*arguments) == 0
    first = head_bytes(tmp_path)
    assert "holds a finished head" in str(run(*arguments, "--seed", 9))
    assert head_bytes(tmp_path) == first
    assert run(*arguments, "--seed", 9, "--restart") == 0
    assert head_bytes(tmp_path) != first


WORKER = """
import sys
from training import cli, report
report.run_plots = lambda *_: []
sys.argv[0] = "lattemix-train"
cli.main()
"""


def test_two_processes_share_the_encoding_and_train_one_head(
    run: Run, arguments: list[str], tmp_path: Path
) -> None:
    arguments += ["--steps", "2"]
    assert run(*arguments, "--out", tmp_path / "alone") == 0
    arguments[arguments.index("--cache") + 1] = str(tmp_path / "empty")
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    # The variables that torchrun sets.
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
    command = [sys.executable, "-c", WORKER, *arguments, "--out", str(tmp_path / "both")]
    processes = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env=os.environ | shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in (0, 1)
    ]
    outputs = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    assert outputs[0].count("distinct sentences") == 1
    assert outputs[0].count("Wrote the head") == 1
    assert "sentences" not in outputs[1]
    assert head_bytes(tmp_path / "alone") == head_bytes(tmp_path / "both")


def test_drops_excluded_sentences_and_records_how_many(
    run: Run, arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "evaluation.txt").write_text(f"{SENTENCES[0].upper()}!\n{SENTENCES[1]}\nother\n")
    out, exclude = tmp_path / "out", ["--exclude", tmp_path / "evaluation.txt"]
    assert run(*arguments, "--steps", 2, "--out", out, *exclude) == 0
    note = "Evaluation sentences dropped from the corpus: 2."
    assert f"8 distinct sentences\n{note}\n" in capsys.readouterr().err
    training = Head.load(out).spec.training
    assert (training["sentences"], training["sentences_excluded"]) == (8, 2)
    for file in ("README.md", "report.html"):
        assert note in (out / file).read_text()
        assert "sentences_excluded" in (out / file).read_text()


@pytest.mark.parametrize("stream", ["stdin", "fifo"])
def test_corpus_from_a_stream_gives_the_same_head(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    corpus: Path,
    tmp_path: Path,
    stream: str,
) -> None:
    arguments += ["--steps", "2"]
    assert run(*arguments, "--about", "x", "--out", tmp_path / "file") == 0
    if stream == "stdin":
        source = "-"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(corpus.read_bytes())))
    else:
        source = str(tmp_path / "fifo")
        os.mkfifo(source)
        Thread(target=Path(source).write_bytes, args=[corpus.read_bytes()], daemon=True).start()
    arguments[arguments.index("--corpus") + 1] = source
    assert run(*arguments, "--about", "x", "--out", tmp_path / "stream") == 0
    assert head_bytes(tmp_path / "file") == head_bytes(tmp_path / "stream")


def test_prints_the_commands_that_export_and_serve(
    run: Run,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    backbone: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "my head"
    arguments += settings(max_tokens=6)
    assert run(*arguments, "--steps", 2, "--out", out) == 0
    *_, note, _, _, export, serve = capsys.readouterr().err.splitlines()
    assert "50.0% of the sentences are longer than max_tokens (6) and were truncated" in note
    expected = ["--head", str(out), "--name", "my-head", "--backbone", str(backbone)]
    assert shlex.split(export) == ["lattemix-train", "export", *expected]
    assert shlex.split(serve) == ["lattemix", "serve", "--model", "my-head"]
    assert run(*shlex.split(export)[1:], "--store", tmp_path / "store") == 0
    assert Store(tmp_path / "store").open("my-head").manifest.latent_dims == 4


def test_says_when_a_head_cannot_be_served(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tmp_path: Path,
) -> None:
    arguments += ["--steps", "2"]
    assert run(*arguments, "--out", tmp_path / "a", *settings(encoder="free", model="normal")) == 0
    assert "lattemix-train export" not in capsys.readouterr().err
    monkeypatch.setattr("lattemix.build.network.FAMILIES", {})
    assert run(*arguments, "--out", tmp_path / "b") == 0
    output = capsys.readouterr().err
    assert "this head can be evaluated, but not served. " in output
    assert "lattemix-train export" not in output


@pytest.fixture
def trained(encoded: EncodedCorpus, recipe: Recipe, tmp_path: Path) -> Head:
    make_head(encoded, recipe, "x", progress=False).save(tmp_path)
    return Head.load(tmp_path)


def test_probe_mixtures_are_those_of_the_saved_head(trained: Head, encoded: EncodedCorpus) -> None:
    # The encoder is stored in half precision; probes are computed after rounding to it.
    mixtures = trained.mixtures(encoded.backbone.encode(trained.spec.probes))
    np.testing.assert_allclose(mixtures, trained.tensors["probes"], atol=1e-7)


def test_centre_is_the_mean_root_mixture(trained: Head, encoded: EncodedCorpus) -> None:
    tokens = encoded.backbone.encode(SENTENCES)
    mixtures = trained.mixtures(tokens)
    np.testing.assert_allclose(trained.tensors["centre"], np.sqrt(mixtures).mean(0), atol=1e-3)
    for mixture, vectors in zip(mixtures, tokens, strict=True):
        np.testing.assert_allclose(mixture, trained.distributions(vectors).mean(0), atol=1e-6)


def test_seed_determines_the_head(encoded: EncodedCorpus, recipe: Recipe, tmp_path: Path) -> None:
    for name, seed in [("a", 0), ("b", 0), ("c", 1)]:
        chosen = recipe.model_copy(update={"seed": seed})
        make_head(encoded, chosen, "x", progress=False).save(tmp_path / name)
    a, b, c = (head_bytes(tmp_path / name) for name in "abc")
    assert a == b
    assert a != c


@pytest.mark.parametrize(("model", "outputs"), [("normal", 8), ("autoencoder", 4)])
def test_baseline_heads_are_saved_but_not_exported(
    encoded: EncodedCorpus, recipe: Recipe, tmp_path: Path, model: str, outputs: int
) -> None:
    chosen = recipe.model_copy(update={"model": model})
    make_head(encoded, chosen, "x", progress=False).save(tmp_path)
    head = Head.load(tmp_path)
    assert head.encoder[0][0].shape == (outputs, 16)
    with pytest.raises(ExportError, match=f"of the {model} model, a baseline"):
        build_model(encoded.backbone.checkpoint, head)


def test_rejects_a_corpus_without_known_words(
    encoded: EncodedCorpus, recipe: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = encoded.backbone.encode(SENTENCES).take([])
    monkeypatch.setattr(EncodedCorpus, "shard", lambda *_: empty)
    with pytest.raises(BackboneError, match="No word of the corpus is in the vocabulary"):
        make_head(encoded, recipe, "x", progress=False)
