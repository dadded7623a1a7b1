import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lattemix.build.head import Head
from model_store import LatteMixError
from tests.tiny import SENTENCES
from tests.training.conftest import Run, settings
from tests.training.test_job import ROOT, head_bytes, log
from training.checkpoint import TrainingCheckpoint
from training.interrupt import Interrupted, interruptible, uninterrupted
from training.monitor import Monitor
from training.output import saved_step


@pytest.fixture(autouse=True)
def _default_handlers() -> Iterator[None]:
    """pytest's parent process may ignore SIGINT."""
    handlers = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: signal.SIG_DFL}
    previous = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


def log_steps(out: Path) -> list[int]:
    return [entry["step"] for entry in log(out)]


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int, number: int) -> None:
    """Send this process a signal during a step, once."""
    original = Monitor.step

    def interrupted_step(self: Monitor, current: int, *rest: object) -> None:
        original(self, current, *rest)
        if current == step:
            monkeypatch.setattr(Monitor, "step", original)
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Monitor, "step", interrupted_step)


@pytest.mark.parametrize(
    ("number", "step"),
    [(signal.SIGINT, 0), (signal.SIGTERM, 21), (signal.SIGINT, 29)],
)
def test_interrupted_run_resumes_to_the_same_head(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tmp_path: Path,
    number: signal.Signals,
    step: int,
) -> None:
    arguments += ["--steps", "30", "--out"]
    complete, out = tmp_path / "complete", tmp_path / "my head"
    assert run(*arguments, complete) == 0
    interrupt_at(monkeypatch, step, number)
    assert run(*arguments, out, "--restart") == 128 + number
    output = capsys.readouterr().err
    assert f"Interrupted. The run is saved at step {step + 1:,}. Resume it with:" in output
    command = shlex.split(output.splitlines()[-1])
    assert command == ["lattemix-train", *arguments, str(out)]
    assert run(*command[1:]) == 0
    assert head_bytes(out) == head_bytes(complete)
    assert log_steps(out) == log_steps(complete)


def test_interrupted_restart_leaves_the_old_head(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tmp_path: Path,
) -> None:
    arguments += ["--steps", "5", "--out", str(tmp_path)]
    assert run(*arguments) == 0
    old = head_bytes(tmp_path)
    interrupt_at(monkeypatch, 3, signal.SIGINT)
    assert run(*arguments, "--seed", 9, "--restart") == 130
    assert head_bytes(tmp_path) == old
    command = shlex.split(capsys.readouterr().err.splitlines()[-1])
    assert run(*command[1:]) == 0
    assert head_bytes(tmp_path) != old
    assert "holds a finished head" in str(run(*arguments))


def test_interrupted_before_training_leaves_nothing(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tmp_path: Path,
) -> None:
    interrupt = partial(os.kill, os.getpid(), signal.SIGINT)
    monkeypatch.setattr("training.backbones.load", lambda *_: interrupt())
    assert run(*arguments, "--out", tmp_path / "out") == 130
    assert "Interrupted before the first step: nothing is saved." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_signals_are_ignored_while_the_head_is_saved(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    tmp_path: Path,
) -> None:
    save = Head.save

    def interrupted_save(self: Head, directory: Path) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        save(self, directory)

    monkeypatch.setattr(Head, "save", interrupted_save)
    assert run(*arguments, "--steps", 2, "--out", tmp_path / "out") == 0
    assert "Interrupted" not in capsys.readouterr().err
    assert Head.load(tmp_path / "out")
    assert not (tmp_path / "out" / "run").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def stopped(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], tmp_path: Path
) -> tuple[list[str], Path]:
    """Arguments of a job that failed at step 3 of 5, and its checkpoint of step 2."""
    arguments += ["--steps", "5", "--out", str(tmp_path / "out")]
    monkeypatch.setattr("training.heads.TrainingCheckpoint", partial(TrainingCheckpoint, every=2))

    def fail(self: Monitor, step: int, *rest: object) -> None:
        if step == 3:
            raise LatteMixError("stopped")

    with monkeypatch.context() as patched:
        patched.setattr(Monitor, "step", fail)
        assert run(*arguments) == "lattemix-train: stopped"
    return arguments, tmp_path / "out" / "run" / "checkpoint.safetensors"


def test_killed_run_resumes_to_the_same_head(
    run: Run, monkeypatch: pytest.MonkeyPatch, arguments: list[str], tmp_path: Path
) -> None:
    arguments += ["--steps", "5", "--out"]
    complete, killed = tmp_path / "complete", tmp_path / "killed"
    original = Monitor.step

    def copying_step(self: Monitor, step: int, *rest: object) -> None:
        original(self, step, *rest)
        if step == 3:
            shutil.copytree(complete, killed)  # what SIGKILL would leave

    with monkeypatch.context() as patched:
        patched.setattr("training.heads.TrainingCheckpoint", partial(TrainingCheckpoint, every=2))
        patched.setattr(Monitor, "step", copying_step)
        assert run(*arguments, complete) == 0
    assert saved_step(killed) == 2
    assert not (killed / "head.json").exists()
    assert run(*arguments, killed) == 0
    assert head_bytes(killed) == head_bytes(complete)
    assert log_steps(killed) == log_steps(complete)
    assert not (killed / "run").exists()


def test_resuming_with_another_corpus_is_rejected_and_keeps_the_checkpoint(
    run: Run, stopped: tuple[list[str], Path], tmp_path: Path
) -> None:
    arguments, checkpoint = stopped
    saved = checkpoint.read_bytes()
    (tmp_path / "other.txt").write_text("\n".join([*SENTENCES, "one more"]))
    arguments[arguments.index("--corpus") + 1] = str(tmp_path / "other.txt")
    assert "belongs to a run with different settings: corpus (then" in str(run(*arguments))
    assert checkpoint.read_bytes() == saved
    assert run(*arguments, "--restart") == 0


def test_resuming_with_another_setting_is_rejected(
    run: Run, stopped: tuple[list[str], Path]
) -> None:
    arguments, _ = stopped
    message = str(run(*arguments, *settings(learning_rate=0.5)))
    assert "settings: learning_rate (then 0.0005, now 0.5)" in message


def test_resuming_with_another_exclusion_is_rejected(
    run: Run, stopped: tuple[list[str], Path], tmp_path: Path
) -> None:
    arguments, _ = stopped
    (tmp_path / "evaluation.txt").write_text("not a sentence of the corpus")
    message = str(run(*arguments, "--exclude", tmp_path / "evaluation.txt"))
    assert "settings: exclude (then None, now " in message
    assert run(*arguments) == 0


def test_missing_tensorboard_is_reported_before_the_old_run_is_discarded(
    run: Run, monkeypatch: pytest.MonkeyPatch, stopped: tuple[list[str], Path]
) -> None:
    arguments, checkpoint = stopped
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    message = str(run(*arguments, "--tensorboard", "--restart"))
    assert "pip install 'lattemix[tensorboard]'" in message
    assert checkpoint.exists()


def signalled(first: str, second: str) -> subprocess.CompletedProcess[str]:
    """A process that receives two signals while interruption is deferred."""
    code = f"""
import os, signal
from training.interrupt import interruptible, uninterrupted
signal.signal(signal.SIGINT, signal.default_int_handler)
with interruptible(), uninterrupted():
    os.kill(os.getpid(), signal.{first})
    print("still running", flush=True)
    os.kill(os.getpid(), signal.{second})
    print("done", flush=True)
"""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_the_same_signal_again_kills_the_process(name: str) -> None:
    outcome = signalled(name, name)
    assert outcome.returncode == -signal.Signals[name]
    assert outcome.stdout == "still running\n"


def test_another_signal_does_not_prevent_saving() -> None:
    finished = []

    def work() -> None:
        with interruptible(), uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)
            os.kill(os.getpid(), signal.SIGTERM)
            finished.append(True)

    with pytest.raises(Interrupted, match="2"):
        work()
    assert finished


def test_a_signal_that_the_parent_process_ignores_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with interruptible():
        os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
