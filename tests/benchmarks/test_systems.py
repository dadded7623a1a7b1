"""Systems that cannot start."""

import pytest

from benchmarks.systems import Systems, started


def test_systems_that_cannot_start_are_left_out_with_a_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> int:
        raise RuntimeError("A worker exited with 1:\nno bf16")

    assert started({"first": lambda: 1, "second": fail, "third": lambda: 3}) == {
        "first": 1,
        "third": 3,
    }
    assert capsys.readouterr().out == "second is left out. A worker exited with 1:\nno bf16\n"


def test_model2vec_without_a_directory_is_left_out_with_a_message(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Systems, "_worker", lambda *_: object())
    systems = Systems()
    assert list(systems.static) == ["library fast"]
    assert "model2vec is left out" in capsys.readouterr().out
