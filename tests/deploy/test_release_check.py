"""`deploy/release_check.py`, which `make release-check` runs: interpreters and wrong answers."""

import sys
from pathlib import Path

import pytest

from tests.deploy.conftest import load

release_check = load("release_check")
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Directory of a wheel and an sdist, without other Pythons than this one at hand."""
    for name in ("lattemix-1.2-py3-none-any.whl", "lattemix-1.2.tar.gz"):
        (tmp_path / name).touch()
    monkeypatch.setattr(
        release_check,
        "find_python",
        lambda version: Path(sys.executable) if version == PYTHON else None,
    )
    return tmp_path


def main(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["release_check", *map(str, arguments)])
    return int(release_check.main())


def command(path: Path, version: str, output: str) -> Path:
    """A program that prints a version and an answer."""
    lines = f'[ "$1" = --version ] && echo "lattemix {version}" || printf "{output}"'
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path


def test_finds_this_python_and_no_unknown_one() -> None:
    assert PYTHON in release_check.supported_versions()
    assert release_check.find_python(PYTHON) is not None
    assert release_check.find_python("3.999") is None


def test_skips_an_interpreter_that_does_not_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "python3.998").write_text("#!/bin/sh\nexit 127\n")
    (tmp_path / "python3.998").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert release_check.find_python("3.998") is None


def test_accepts_the_expected_answer(tmp_path: Path) -> None:
    path = command(tmp_path / "lattemix", "1.2", "centred 0.6\\nrating        2.3 (0 to 5)\\n")
    assert release_check.check_answers(path, "1.2", tmp_path) == 2.3


@pytest.mark.parametrize(
    ("version", "output", "message"),
    [
        ("1.1", "rating 2.2", "prints 'lattemix 1.1', not 1.2"),
        ("1.2", "rating 3.9", "expected a rating of 2.2"),
        ("1.2", "centred 0.6", "expected a rating of 2.2"),
    ],
)
def test_rejects_another_version_and_wrong_answers(
    tmp_path: Path, version: str, output: str, message: str
) -> None:
    path = command(tmp_path / "lattemix", version, output)
    with pytest.raises(release_check.CheckError, match=message):
        release_check.check_answers(path, "1.2", tmp_path)


def test_commands_do_not_see_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATTEMIX_MODEL", "mine")
    monkeypatch.setenv("PYTHONPATH", "/checkout")
    names = release_check.run("env").split()
    assert not [name for name in names if name.startswith(("PYTHON", "LATTEMIX_MODEL"))]


def test_reports_every_distribution(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(release_check, "check", lambda python, distribution: 2.2)
    assert main(monkeypatch, directory, "--python", PYTHON, "3.999") == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "Not checked, not found: Python 3.999"
    assert [line.split(",")[1].split(":")[0] for line in rest] == [
        " lattemix-1.2-py3-none-any.whl",
        " lattemix-1.2.tar.gz",
    ]
    assert main(monkeypatch, directory, "--all", "--python", PYTHON, "3.999") == 1


def test_fails_if_a_check_fails_or_nothing_is_checked(
    directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(python: Path, distribution: Path) -> float:
        raise release_check.CheckError("does not install")

    monkeypatch.setattr(release_check, "check", fail)
    assert main(monkeypatch, directory, "--python", PYTHON) == 1
    assert capsys.readouterr().out.count("FAILED: does not install") == 2
    assert main(monkeypatch, directory, "--python", "3.999") == 1
