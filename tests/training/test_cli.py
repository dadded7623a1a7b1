import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lattemix.build.head import Head
from tests.training.conftest import Run, settings
from tests.training.test_job import ROOT


def fail_to_load(*_: object, **__: object) -> None:
    pytest.fail("the backbone must not be opened or loaded")


def test_help_lists_every_setting_with_its_default(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    assert run("train", "--help") == 0
    output = capsys.readouterr().out
    for line in (
        "latent_dims=100: L, the number of latent variables.",
        "learning_rate=0.0005: Peak learning rate.",
        "steps=1024: Training steps; or set epochs.",
        "epochs: Passes over the corpus; or set steps.",
        "beta_schedule=linear: Schedule of the KL weight: from 0 to 1, or constant at 1. "
        "Choices: linear, cyclical, constant.",
    ):
        assert re.search(rf"^ *{re.escape(line)} *$", output, re.MULTILINE)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (settings(free_bits=-1), "--set free_bits=-1: Input should be greater than or equal to 0."),
        (settings(learning_rate="inf"), "--set learning_rate=inf: Input should be a finite number"),
        (settings(classes="many"), "--set classes=many: Input should be a valid integer"),
        (settings(model="x"), "--set model=x: Input should be 'categorical', 'normal' or 'autoen"),
        (
            settings(colour="red"),
            "--set colour: there is no such setting. Choose among objective, ",
        ),
        (["--set", "classes"], "--set takes KEY=VALUE, as in classes=20, not 'classes'."),
        (["--steps", 5, *settings(epochs=1)], "Set either steps or epochs, not both."),
    ],
)
def test_rejects_invalid_settings_by_name(
    run: Run, arguments: list[str], tmp_path: Path, options: list[str], message: str
) -> None:
    code = str(run(*arguments, "--out", tmp_path / "out", *options))
    assert code.startswith(f"lattemix-train: {message}")
    assert "toml" not in code


def test_names_the_recipe_of_an_invalid_setting(
    run: Run, arguments: list[str], tmp_path: Path
) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text("steps = 5\nfree_bits = -1\n")
    code = str(run(*arguments, "--out", tmp_path / "out", "--recipe", recipe, "--seed", 1))
    assert code.startswith(f"lattemix-train: In the recipe {recipe}, free_bits: Input should be")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "Cannot read the corpus"),
        ("", "has 0 distinct"),
        (" \n\n", "has 0 distinct"),
        ("one\none\n", "has 1 distinct"),
    ],
)
def test_rejects_missing_or_small_corpus_before_opening_the_backbone(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    tmp_path: Path,
    content: str | None,
    message: str,
) -> None:
    monkeypatch.setattr("training.job.open_backbone", fail_to_load)
    if content is not None:
        (tmp_path / "small.txt").write_text(content)
    arguments[arguments.index("--corpus") + 1] = str(tmp_path / "small.txt")
    assert message in str(run(*arguments, "--out", tmp_path / "heads" / "mine"))
    assert not (tmp_path / "heads").exists()


def test_checks_every_corpus_file(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("training.job.open_backbone", fail_to_load)
    table = tmp_path / "table.csv"
    table.write_text("a,b\nc,d\n")
    code = str(run(*arguments, "--corpus", table, "--out", tmp_path / "out"))
    assert "table.csv has the columns 'a', 'b'" in code


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "has 0 distinct"), (b"one\n", "has 1 distinct")],
)
def test_rejects_small_standard_input_before_loading_weights(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    tmp_path: Path,
    content: bytes,
    message: str,
) -> None:
    monkeypatch.setattr("training.backbones.load", fail_to_load)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    arguments[arguments.index("--corpus") + 1] = "-"
    assert message in str(run(*arguments, "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--backbone", "./x"], "There is no backbone './x'"),
        (["--dev", "none.csv"], "Cannot read none.csv"),
        (["--corpus", "none.txt"], "Cannot read the corpus none.txt"),
        (
            settings(max_tokens=999),
            "max_tokens is 999, but tiny-bert0 has 32 positions: lower it in the recipe or with "
            "--set max_tokens=N.",
        ),
        (settings(layer=3), "tiny-bert0 has 2 layers, so there is no layer 3."),
        (settings(token_weighting="learned"), "token_weighting 'learned' is for static word"),
    ],
)
def test_rejects_before_loading_weights_and_leaves_nothing(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    tmp_path: Path,
    options: list[str],
    message: str,
) -> None:
    monkeypatch.setattr("training.backbones.load", fail_to_load)
    code = run(*arguments, "--out", tmp_path / "heads" / "out", *options)
    assert str(code).startswith(f"lattemix-train: {message}")
    assert not (tmp_path / "heads").exists()


def test_damaged_weights_leave_nothing(
    run: Run, arguments: list[str], backbone: Path, tmp_path: Path
) -> None:
    damaged = Path(shutil.copytree(backbone, tmp_path / "damaged"))
    (damaged / "model.safetensors").write_bytes(b"damaged")
    code = run(*arguments, "--out", tmp_path / "out", "--backbone", damaged)
    assert "damaged cannot be loaded" in str(code)
    assert not (tmp_path / "out").exists()


def test_prints_progress_in_lines_without_a_terminal(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("training.progress.INTERVAL", 0)
    assert run(*arguments, "--steps", 4, "--out", tmp_path / "out") == 0
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("Encoding: 10/10 sentences, ") for line in lines)
    (line,) = [line for line in lines if line.startswith("Training: 3/4 steps")]
    assert re.search(r"loss=[\d.]+, .*, \d\d:\d\d elapsed, \d\d:\d\d left$", line)


def test_errors_and_help_do_not_import_torch(tmp_path: Path) -> None:
    code = f"""
import sys
from training import cli
sys.argv[1:] = ["train", "--corpus", "none.txt", "--out", {str(tmp_path / "out")!r}]
try:
    cli.main()
except SystemExit as stopped:
    print(stopped.code)
print("torch" in sys.modules or "transformers" in sys.modules)
"""
    command = [sys.executable, "-c", code]
    outcome = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    message, imported = outcome.stdout.splitlines()
    assert message.startswith("lattemix-train: Cannot read the corpus none.txt")
    assert imported == "False"


def test_head_on_a_distilled_table_is_exported_from_the_transformer(
    run: Run, corpus: Path, backbone: Path, dev: Path, tmp_path: Path
) -> None:
    table, out, cache = tmp_path / "table", tmp_path / "mine", tmp_path / "cache"
    assert run("distill", "--backbone", backbone, "--layer", 1, "--out", table) == 0
    options = settings(latent_dims=4, classes=5, max_tokens=16, token_weighting="learned")
    training = ["--backbone", table, "--corpus", corpus, "--cache", cache, "--steps", 20, *options]
    assert run("train", *training, "--out", out) == 0
    origin = Head.load(out).spec.backbone
    assert (origin.name, origin.layer, origin.template) == (backbone.name, 1, "{token}")
    head = ["--head", out, "--backbone", backbone]
    assert run("export", *head, "--store", tmp_path / "store") == 0
    assert run("evaluate", *head, "--data", dev, "--sets", dev.name, "--cache", cache) == 0
    assert run("describe", *head, "--corpus", corpus, "--cache", cache) == 0


def test_distill_reports_a_template_without_a_token(
    run: Run, backbone: Path, tmp_path: Path
) -> None:
    code = run("distill", "--backbone", backbone, "--out", tmp_path / "t", "--template", "word")
    assert str(code).startswith("lattemix-train: The template 'word' must contain {token} once.")
