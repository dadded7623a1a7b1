import fcntl
import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lattemix.build.head import Head
from model_store import Store
from tests.conftest import SENTENCES
from training import cli
from training.monitor import Monitor
from training.plots import run_plots

TINY = ["--latent-dims", "4", "--classes", "5", "--max-tokens", "16", "--batch-sentences", "2"]


def run(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> object:
    monkeypatch.setattr(sys, "argv", ["lattemix-train", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code


@pytest.fixture(autouse=True)
def _without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing them takes longer than everything else that a tiny job does."""
    monkeypatch.setattr("training.report.run_plots", lambda *_: [])


@pytest.fixture
def arguments(backbone: Path, corpus: Path, tmp_path: Path) -> list[str]:
    common = ["train", "--corpus", corpus, "--backbone", backbone, "--cache", tmp_path / "cache"]
    return [*map(str, common), *TINY]


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    rows = [f"\t\t\t\t{i % 4}\t{s}\t{SENTENCES[i - 3]}" for i, s in enumerate(SENTENCES)]
    path = tmp_path / "sts-dev.csv"
    path.write_text("\n".join(rows))
    return path


def test_a_job_leaves_a_head_its_card_and_its_log(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], dev: Path, backbone: Path, tmp_path: Path
) -> None:
    monkeypatch.setattr("training.report.run_plots", run_plots)  # with its pictures
    out = tmp_path / "heads" / "mine"
    told = ["--about", "Ten sentences", "--licence", "CC0", "--dev", dev, "--seed", 3]
    assert run(monkeypatch, *arguments, "--steps", 20, "--out", out, *told) == 0
    names = {path.name for path in out.iterdir()}
    files = {"head.json", "head.safetensors", "README.md", "log.jsonl"}
    assert names == files | {"latents.json", "report.html", "report.png"}
    spec = Head.load(out).spec
    assert (spec.recipe["seed"], spec.recipe["steps"], spec.corpus) == (3, 20, "Ten sentences")
    assert spec.training["sentences"] == 10
    assert [entry["step"] for entry in entries(out)] == [0, 19]
    assert entries(out)[-1]["kl"] == spec.training["kl"]
    card = (out / "README.md").read_text()
    for part in ("# mine", "Ten sentences. Licence of the data: CC0", "| seed | 3 |"):
        assert part in card
    for row in ("pooling, mean", "pooling, centred mean", "mixture, js", "random encoder, centred"):
        assert f"| {row} |" in card

    assert (
        run(monkeypatch, "export", "--head", out, "--store", tmp_path, "--backbone", backbone) == 0
    )
    assert Store(tmp_path).open("mine").manifest.latent_dims == 4


def entries(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def test_watching_a_run_does_not_change_its_head(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], dev: Path, tmp_path: Path
) -> None:
    arguments += ["--steps", "60"]
    assert run(monkeypatch, *arguments, "--out", tmp_path / "plain") == 0
    watching = ["--dev", dev, "--tensorboard"]
    assert run(monkeypatch, *arguments, "--out", tmp_path / "watched", *watching) == 0
    for name in ("head.safetensors", "head.json"):
        plain, watched = ((tmp_path / out / name).read_bytes() for out in ("plain", "watched"))
        assert plain == watched
    assert "dev" not in entries(tmp_path / "plain")[-1]
    assert "dev" in entries(tmp_path / "watched")[-1]
    assert [*(tmp_path / "watched" / "tensorboard").glob("events.*")]
    assert not (tmp_path / "plain" / "tensorboard").exists()


@pytest.mark.parametrize(
    ("settings", "metric"),
    [
        ([], "centred"),
        (["--metric", "js"], "js"),
        (["--token-weighting", "sif"], "centred"),
        (["--model", "normal"], "l2"),
        (["--model", "autoencoder"], "cosine"),
    ],
)
def test_the_last_dev_score_is_the_heads(
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    dev: Path,
    tmp_path: Path,
    settings: list[str],
    metric: str,
) -> None:
    out = tmp_path / "out"
    assert run(monkeypatch, *arguments, "--steps", 5, "--out", out, "--dev", dev, *settings) == 0
    row = re.search(rf"\| mixture, {metric} \| (\S+) \|", (out / "README.md").read_text())
    assert row is not None
    assert entries(out)[-1]["dev"] == pytest.approx(float(row[1]), abs=0.02)
    assert f"mixture, {metric}</th><td>{row[1]}</td>" in (out / "report.html").read_text()


def test_a_run_that_has_collapsed_says_so_again_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tmp_path: Path,
) -> None:
    out = tmp_path / "out"
    # Nothing is free, and there is more to pay for than these few tokens are worth.
    changes = ["--latent-dims", 32, "--normalisation", "centre", "--free-bits", 0]
    changes += ["--beta-schedule", "constant", "--steps", 300]
    assert run(monkeypatch, *arguments, "--out", out, *changes) == 0
    told = capsys.readouterr().err
    says = r"Warning: the latent collapsed. At the end only \d+ of 32 latent dims carry information"
    assert "Warning: the latent is collapsing. At step" in told
    assert re.search(says, told)
    assert re.search(says, (out / "report.html").read_text())
    assert run(monkeypatch, *arguments, "--out", tmp_path / "other", "--steps", 5) == 0
    assert "Warning" not in capsys.readouterr().err
    assert "The latent did not collapse" in (tmp_path / "other" / "report.html").read_text()


def test_without_tensorboard_the_user_is_told_what_to_install_before_anything_is_done(
    monkeypatch: pytest.MonkeyPatch, interrupted: tuple[list[str], Path]
) -> None:
    arguments, checkpoint = interrupted
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert run(monkeypatch, *arguments, "--tensorboard", "--restart") == (
        "lattemix-train: --tensorboard needs TensorBoard: pip install 'lattemix[tensorboard]'."
    )
    assert checkpoint.exists()


def test_begun_anew_the_events_of_the_run_before_are_gone(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], tmp_path: Path
) -> None:
    arguments += ["--steps", "5", "--out", str(tmp_path / "out"), "--tensorboard"]
    assert run(monkeypatch, *arguments) == 0
    (old,) = (tmp_path / "out" / "tensorboard").iterdir()
    assert run(monkeypatch, *arguments, "--restart") == 0
    (new,) = (tmp_path / "out" / "tensorboard").iterdir()
    assert old != new


def test_killed_and_begun_again_it_gives_the_same_head(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], tmp_path: Path
) -> None:
    arguments += ["--steps", "1500"]
    assert run(monkeypatch, *arguments, "--out", tmp_path / "whole") == 0
    out = tmp_path / "killed"
    process = subprocess.Popen([sys.executable, "-m", "training", *arguments, "--out", str(out)])
    checkpoint = out / "run" / "checkpoint.safetensors"
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it must still have been running"
    assert not (out / "head.json").exists()
    assert run(monkeypatch, *arguments, "--out", out) == 0
    heads = [(path / "head.safetensors").read_bytes() for path in (tmp_path / "whole", out)]
    assert heads[0] == heads[1]
    assert not checkpoint.exists()


DEFAULT_SIGNALS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell job ignores it
"""

INTERRUPTED = """
from training import cli, monitor

finished = monitor.Monitor.step

def step(self, number, *rest):
    finished(self, number, *rest)
    if number == int(os.environ["AT_STEP"]):
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))

monitor.Monitor.step = step
sys.argv[0] = "lattemix-train"
cli.main()
"""


def interrupt(arguments: list[str], number: int, step: int) -> subprocess.CompletedProcess[str]:
    """Run a job in a process of its own that sends itself a signal during a step."""
    return subprocess.run(
        [sys.executable, "-c", DEFAULT_SIGNALS + INTERRUPTED, *arguments],
        env=os.environ | {"AT_STEP": str(step), "SIGNAL": str(number)},
        cwd=Path(cli.__file__).parent.parent,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("number", "step"),
    [(signal.SIGINT, 0), (signal.SIGTERM, 41), (signal.SIGINT, 59)],
)
def test_interrupted_at_any_step_and_resumed_it_gives_the_same_head(
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    tmp_path: Path,
    number: signal.Signals,
    step: int,
) -> None:
    arguments += ["--steps", "60"]
    assert run(monkeypatch, *arguments, "--out", tmp_path / "whole") == 0
    out = tmp_path / "my head"
    outcome = interrupt([*arguments, "--out", str(out), "--restart"], number, step)
    assert outcome.returncode == 128 + number, outcome.stderr
    assert f"Interrupted. The run is saved at step {step + 1:,}. Resume it with:" in outcome.stderr
    command = shlex.split(outcome.stderr.splitlines()[-1])
    assert command == ["lattemix-train", *arguments, "--out", str(out)]
    assert run(monkeypatch, *command[1:]) == 0
    for name in ("head.safetensors", "head.json"):
        whole, resumed = ((path / name).read_bytes() for path in (tmp_path / "whole", out))
        assert whole == resumed
    steps = [[entry["step"] for entry in entries(path)] for path in (tmp_path / "whole", out)]
    assert steps[0] == steps[1]


def test_a_restarted_run_that_was_interrupted_is_resumed_beside_the_old_head(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], tmp_path: Path
) -> None:
    arguments += ["--steps", "20", "--out", str(tmp_path / "out")]
    assert run(monkeypatch, *arguments) == 0
    old = (tmp_path / "out" / "head.safetensors").read_bytes()
    outcome = interrupt([*arguments, "--seed", "9", "--restart"], signal.SIGINT, 5)
    assert outcome.returncode == 130, outcome.stderr
    assert (tmp_path / "out" / "head.safetensors").read_bytes() == old
    assert run(monkeypatch, *shlex.split(outcome.stderr.splitlines()[-1])[1:]) == 0
    assert (tmp_path / "out" / "head.safetensors").read_bytes() != old
    assert "holds a finished head" in str(run(monkeypatch, *arguments))


LOADING = """
from training import backbones, cli

def load(*_):
    os.kill(os.getpid(), signal.SIGINT)

backbones.load = load
sys.argv[0] = "lattemix-train"
cli.main()
"""


def test_interrupted_before_training_it_says_that_nothing_is_saved(
    arguments: list[str], tmp_path: Path
) -> None:
    outcome = subprocess.run(
        [
            sys.executable,
            "-c",
            DEFAULT_SIGNALS + LOADING,
            *arguments,
            "--out",
            str(tmp_path / "out"),
        ],
        cwd=Path(cli.__file__).parent.parent,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert outcome.returncode == 130
    assert "Interrupted before the first step: nothing is saved." in outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert not (tmp_path / "out").exists()


SAVING = """
from training import cli, job, report

report.run_plots = lambda *_: []
save = job.Head.save

def interrupted_save(self, directory):
    os.kill(os.getpid(), signal.SIGINT)
    save(self, directory)

job.Head.save = interrupted_save
sys.argv[0] = "lattemix-train"
cli.main()
"""


def test_interrupted_while_the_head_is_saved_it_completes(
    arguments: list[str], tmp_path: Path
) -> None:
    outcome = subprocess.run(
        [
            sys.executable,
            "-c",
            DEFAULT_SIGNALS + SAVING,
            *arguments,
            "--steps",
            "20",
            "--out",
            tmp_path / "out",
        ],
        cwd=Path(cli.__file__).parent.parent,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "Interrupted" not in outcome.stderr
    assert Head.load(tmp_path / "out")
    assert not (tmp_path / "out" / "run").exists()


def signalled(first: str, second: str) -> subprocess.CompletedProcess[str]:
    """A process that receives two signals while it cannot be interrupted."""
    code = f"""
from training.interrupt import interruptible, uninterrupted
with interruptible(), uninterrupted():
    os.kill(os.getpid(), signal.{first})
    print("still running", flush=True)
    os.kill(os.getpid(), signal.{second})
    print("done", flush=True)
"""
    root = Path(cli.__file__).parent.parent
    command = [sys.executable, "-c", DEFAULT_SIGNALS + code]
    return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_the_same_signal_again_ends_the_process_at_once(name: str) -> None:
    outcome = signalled(name, name)
    assert outcome.returncode == -signal.Signals[name]
    assert outcome.stdout == "still running\n"


def test_another_signal_does_not_keep_a_run_from_being_saved() -> None:
    outcome = signalled("SIGINT", "SIGTERM")
    assert outcome.stdout == "still running\ndone\n"
    assert "Interrupted: 2" in outcome.stderr


def test_a_signal_that_the_parent_process_ignores_is_ignored() -> None:
    command = [
        *("sh", "-c", 'trap "" INT; exec "$0" "$@"', sys.executable, "-c"),
        "import os, signal\n"
        "from training.interrupt import interruptible\n"
        "with interruptible():\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('still running')\n",
    ]
    root = Path(cli.__file__).parent.parent
    outcome = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert (outcome.returncode, outcome.stdout) == (0, "still running\n")


def test_without_a_terminal_progress_is_printed_in_lines(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("training.progress.INTERVAL", 0)
    assert run(monkeypatch, *arguments, "--steps", 40, "--out", tmp_path / "out") == 0
    lines = capsys.readouterr().err.splitlines()
    assert any(re.fullmatch(r"Encoding: 10/10 sentences, \S+ elapsed", line) for line in lines)
    (line,) = [line for line in lines if line.startswith("Training: 21/40 steps")]
    assert re.search(r"loss [\d.]+, .*, \d\d:\d\d elapsed, \d\d:\d\d left$", line)


class KilledError(BaseException):
    pass


@pytest.fixture
def interrupted(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], tmp_path: Path
) -> tuple[list[str], Path]:
    """Arguments of a job that was killed at step 250 of 300, and its checkpoint."""
    arguments += ["--steps", "300", "--out", str(tmp_path / "out")]
    step = Monitor.step

    def killing(self, number, *rest):
        if number == 250:
            raise KilledError
        return step(self, number, *rest)

    with monkeypatch.context() as patched:
        patched.setattr("training.monitor.Monitor.step", killing)
        patched.setattr(sys, "argv", ["lattemix-train", *arguments])
        with pytest.raises(KilledError):
            cli.main()
    checkpoint = tmp_path / "out" / "run" / "checkpoint.safetensors"
    assert checkpoint.exists()
    return arguments, checkpoint


def test_a_corpus_that_changed_is_named_and_the_checkpoint_kept(
    monkeypatch: pytest.MonkeyPatch, interrupted: tuple[list[str], Path], tmp_path: Path
) -> None:
    arguments, checkpoint = interrupted
    kept = checkpoint.read_bytes()
    other = tmp_path / "other.txt"
    other.write_text("\n".join([*SENTENCES, "one more"]))
    arguments[arguments.index("--corpus") + 1] = str(other)
    code = str(run(monkeypatch, *arguments))
    assert "is of a run with another corpus (then" in code
    assert checkpoint.read_bytes() == kept
    assert run(monkeypatch, *arguments, "--restart") == 0


def test_another_setting_is_named(
    monkeypatch: pytest.MonkeyPatch, interrupted: tuple[list[str], Path]
) -> None:
    arguments, _ = interrupted
    code = str(run(monkeypatch, *arguments, "--learning-rate", 0.5))
    assert "another learning_rate (then 0.005, now 0.5)" in code


def test_a_finished_head_is_not_overwritten_unasked(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], tmp_path: Path
) -> None:
    arguments += ["--steps", "5", "--out", str(tmp_path / "out")]
    assert run(monkeypatch, *arguments) == 0
    first = (tmp_path / "out" / "head.safetensors").read_bytes()
    assert "holds a finished head" in str(run(monkeypatch, *arguments, "--seed", 9))
    assert (tmp_path / "out" / "head.safetensors").read_bytes() == first
    assert run(monkeypatch, *arguments, "--seed", 9, "--restart") == 0
    assert (tmp_path / "out" / "head.safetensors").read_bytes() != first


def test_two_processes_share_the_encoding_and_train_one_head(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], tmp_path: Path
) -> None:
    arguments += ["--steps", "5"]
    assert run(monkeypatch, *arguments, "--out", tmp_path / "alone") == 0
    arguments[arguments.index("--cache") + 1] = str(tmp_path / "another")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", "-m"]
    command = [*launcher, "training", *arguments, "--out", str(tmp_path / "both")]
    environment = os.environ | {"PYTHONPATH": str(Path(cli.__file__).parent.parent)}
    outcome = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stderr.count("distinct sentences") == 1
    assert outcome.stderr.count("Wrote the head") == 1
    heads = [(tmp_path / name / "head.safetensors").read_bytes() for name in ("alone", "both")]
    assert heads[0] == heads[1]


def test_what_cannot_be_served_is_said_before_training(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    backbone: Path,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr("lattemix.build.build.FAMILIES", {})
    assert run(monkeypatch, *arguments, "--steps", 5, "--out", tmp_path / "out") == 0
    assert "this head can be evaluated, but not served. " in capsys.readouterr().err


def test_sentences_that_were_cut_are_told(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tmp_path: Path,
) -> None:
    arguments[arguments.index("--max-tokens") + 1] = "6"
    assert run(monkeypatch, *arguments, "--steps", 5, "--out", tmp_path / "out") == 0
    assert "50.0% of the sentences are longer than max_tokens (6)" in capsys.readouterr().err


def fail_to_load(*_: object, **__: object) -> None:
    pytest.fail("the backbone must not be opened or loaded")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "Cannot read the corpus"),
        ("", "holds no sentences"),
        (" \n\n", "holds no sentences"),
        ("one\none\n", "holds one sentence"),
    ],
)
def test_a_missing_or_too_small_corpus_is_refused_before_the_backbone_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    tmp_path: Path,
    content: str | None,
    says: str,
) -> None:
    monkeypatch.setattr("training.backbones.open_backbone", fail_to_load)
    monkeypatch.setattr("training.backbones.load", fail_to_load)
    if content is not None:
        (tmp_path / "small.txt").write_text(content)
    arguments[arguments.index("--corpus") + 1] = str(tmp_path / "small.txt")
    out = tmp_path / "heads" / "mine"
    assert says in str(run(monkeypatch, *arguments, "--steps", 5, "--out", out))
    assert not (tmp_path / "heads").exists()


def test_the_second_of_two_corpora_is_checked_as_well(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("training.backbones.open_backbone", fail_to_load)
    table = tmp_path / "table.csv"
    table.write_text("a,b\nc,d\n")
    flags = ["--corpus", table, "--out", tmp_path / "out"]
    assert "table.csv has the columns 'a', 'b'" in str(run(monkeypatch, *arguments, *flags))


@pytest.mark.parametrize(
    ("content", "says"), [(b"", "holds no sentences"), (b"one\n", "holds one sentence")]
)
def test_standard_input_without_sentences_is_noticed_before_the_weights_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    tmp_path: Path,
    content: bytes,
    says: str,
) -> None:
    monkeypatch.setattr("training.backbones.load", fail_to_load)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    arguments[arguments.index("--corpus") + 1] = "-"
    assert says in str(run(monkeypatch, *arguments, "--out", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("stream", ["stdin", "fifo"])
def test_a_stream_is_a_corpus(
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    corpus: Path,
    tmp_path: Path,
    stream: str,
) -> None:
    assert run(monkeypatch, *arguments, "--steps", 5, "--out", tmp_path / "file") == 0
    if stream == "stdin":
        source = "-"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(corpus.read_bytes())))
    else:
        source = str(tmp_path / "fifo")
        os.mkfifo(source)
        Thread(target=Path(source).write_bytes, args=[corpus.read_bytes()], daemon=True).start()
    arguments[arguments.index("--corpus") + 1] = source
    assert run(monkeypatch, *arguments, "--steps", 5, "--out", tmp_path / "stream") == 0
    heads = [(tmp_path / name / "head.safetensors").read_bytes() for name in ("file", "stream")]
    assert heads[0] == heads[1]


def test_a_file_in_the_heads_place_is_found_before_training(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], corpus: Path
) -> None:
    code = run(monkeypatch, *arguments, "--out", corpus)
    assert "is a file: a head is a directory" in str(code)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["--backbone", "./x"], "lattemix-train: There is no backbone './x'"),
        (["--dev", "none.csv"], "lattemix-train: Cannot read none.csv"),
        (["--corpus", "none.txt"], "lattemix-train: Cannot read the corpus none.txt"),
        (["--max-tokens", "999"], "lattemix-train: max_tokens is 999, but tiny-bert0 has 32"),
        (["--layer", "3"], "lattemix-train: tiny-bert0 has 2 layers, so layer 3 is none of them"),
        (["--token-weighting", "learned"], "lattemix-train: token_weighting 'learned' is for"),
    ],
)
def test_what_is_wrong_is_found_before_the_weights_are_loaded_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    tmp_path: Path,
    changes: list[str],
    says: str,
) -> None:
    monkeypatch.setattr("training.backbones.load", fail_to_load)
    code = run(monkeypatch, *arguments, "--out", tmp_path / "heads" / "out", *changes)
    assert str(code).startswith(says)
    assert not (tmp_path / "heads").exists()


def test_damaged_weights_leave_nothing(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], backbone: Path, tmp_path: Path
) -> None:
    damaged = Path(shutil.copytree(backbone, tmp_path / "damaged"))
    (damaged / "model.safetensors").write_bytes(b"damaged")
    code = run(monkeypatch, *arguments, "--out", tmp_path / "out", "--backbone", damaged)
    assert "damaged cannot be loaded" in str(code)
    assert not (tmp_path / "out").exists()


def test_an_unwritable_out_is_found_before_the_backbone(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], corpus: Path
) -> None:
    monkeypatch.setattr("training.backbones.open_backbone", fail_to_load)
    code = run(monkeypatch, *arguments, "--out", corpus / "heads" / "mine")
    assert str(code).startswith(f"lattemix-train: --out {corpus / 'heads' / 'mine'} cannot be")


def test_two_jobs_do_not_write_into_one_place(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], tmp_path: Path
) -> None:
    arguments += ["--steps", "5", "--out", str(tmp_path / "out")]
    (tmp_path / "out").mkdir()
    with (tmp_path / "out" / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        assert "Another run is writing into" in str(run(monkeypatch, *arguments))
    assert run(monkeypatch, *arguments) == 0


def test_every_setting_of_a_recipe_is_a_flag_with_its_description(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run(monkeypatch, "train", "--help")
    text = capsys.readouterr().out
    for name in ("--latent-dims", "--beta-schedule", "--free-bits", "--token-weighting", "--seed"):
        assert name in text
    assert "L, the number of latent variables." in text


def test_help_shows_the_defaults_of_the_default_recipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    run(monkeypatch, "train", "--help")
    rows = {
        flag: row
        for row in capsys.readouterr().out.splitlines()
        for flag in re.findall(r"--\S+", row)
    }
    for flag, value in (("--free-bits", "0.3"), ("--learning-rate", "0.005"), ("--steps", "1000")):
        assert f"[default: ({value})]" in rows[flag]
    assert "default" not in rows["--epochs"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--free-bits", "-1"], "--free-bits: Input should be greater than or equal to 0, not -1"),
        (["--learning-rate", "inf"], "--learning-rate: Input should be a finite number, not inf"),
        (["--steps", "5", "--epochs", "1"], "--steps and --epochs: give only one of them."),
    ],
)
def test_a_wrong_setting_is_blamed_on_its_flag(
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    tmp_path: Path,
    flags: list[str],
    says: str,
) -> None:
    code = str(run(monkeypatch, *arguments, "--out", tmp_path / "out", *flags))
    assert code.startswith(f"lattemix-train: {says}")
    assert "toml" not in code


def test_a_wrong_setting_in_a_recipe_is_blamed_on_the_file(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], tmp_path: Path
) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text("steps = 5\nfree_bits = -1\n")
    flags = ["--out", tmp_path / "out", "--recipe", recipe, "--seed", 1]
    code = str(run(monkeypatch, *arguments, *flags))
    assert code.startswith(f"lattemix-train: In the recipe {recipe}, free_bits: Input should be")


def test_train_names_the_commands_that_export_and_serve(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    backbone: Path,
    tmp_path: Path,
) -> None:
    out = tmp_path / "my head"
    assert run(monkeypatch, *arguments, "--steps", 5, "--out", out) == 0
    *_, export, serve = capsys.readouterr().err.splitlines()
    expected = ["--head", str(out), "--name", "my-head", "--backbone", str(backbone)]
    assert shlex.split(export) == ["lattemix-train", "export", *expected]
    assert shlex.split(serve) == ["lattemix", "serve", "--model", "my-head"]
    assert run(monkeypatch, *shlex.split(export)[1:], "--store", tmp_path / "store") == 0
    assert Store(tmp_path / "store").open("my-head")


def test_train_names_no_export_for_a_head_that_cannot_be_served(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tmp_path: Path,
) -> None:
    flags = ["--steps", 5, "--out", tmp_path / "out", "--model", "normal"]
    assert run(monkeypatch, *arguments, *flags) == 0
    assert "lattemix-train export" not in capsys.readouterr().err
