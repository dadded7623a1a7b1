import io

import pytest

from training import progress
from training.progress import Progress, track


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, as the tests set it."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_a_line_is_printed_every_few_seconds_and_at_the_end(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    bar = Progress("Training", 100, "steps", start=20)
    for _ in range(80):
        clock[0] += 0.5
        bar.update()
    bar.show({"loss": "1.5"})
    bar.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Training: 30/100 steps, 00:05 elapsed, 00:35 left"
    assert len(lines) == 8
    assert lines[-1] == "Training: 100/100 steps, 00:40 elapsed"


def test_an_interrupted_phase_prints_no_last_line(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    bar = Progress("Encoding", 10, "sentences")
    bar.update(3)
    bar.close()
    assert capsys.readouterr().err == ""


def test_a_terminal_shows_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    assert list(track("ab", "Evaluating", "sets")) == ["a", "b"]
    assert "Evaluating: 100%" in terminal.getvalue()


def test_a_hidden_one_prints_nothing(
    clock: list[float], capsys: pytest.CaptureFixture[str]
) -> None:
    bar = Progress("Training", 2, "steps", shown=False)
    clock[0] = 100
    bar.update(2)
    bar.close()
    assert capsys.readouterr().err == ""
