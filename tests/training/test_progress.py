import io

import pytest

from training import progress
from training.progress import progress_bar


def test_prints_lines_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "INTERVAL", 0)
    bar = progress_bar("Training", "steps", total=100, start=20)
    bar.set_postfix({"loss": "1.5"}, refresh=False)
    bar.update(30)
    bar.close()
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("Training: 20/100 steps, 00:00 elapsed, ")
    assert second.startswith("Training: 50/100 steps, loss=1.5, 00:00 elapsed, ")


def test_prints_no_more_than_a_line_per_interval(capsys: pytest.CaptureFixture[str]) -> None:
    bar = progress_bar("Encoding", "sentences", total=1000)
    for _ in range(1000):
        bar.update()
    bar.close()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[-1].startswith("Encoding: 1000/1000 sentences")


def test_shows_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    assert list(progress_bar("Evaluating", "sets", "ab")) == ["a", "b"]
    assert "Evaluating: 100%" in terminal.getvalue()


def test_prints_nothing_if_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    progress_bar("Training", "steps", total=2, shown=False).close()
    assert capsys.readouterr().err == ""
