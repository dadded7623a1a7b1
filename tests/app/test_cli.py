import socket
import subprocess
import sys
from pathlib import Path

import pytest

from app import cli
from app.settings import Settings, load_settings
from model_store import LatteMixError, Store

LATTEMIX = str(Path(sys.executable).parent / "lattemix")


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run `lattemix` in this process; return its exit code, output and error output."""
    sys.argv = ["lattemix", *arguments]
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    captured = capsys.readouterr()
    if isinstance(stopped.value.code, str):  # what sys.exit prints on its own
        return 1, captured.out, stopped.value.code
    return stopped.value.code or 0, captured.out, captured.err


@pytest.fixture(autouse=True)
def _own_arguments(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    monkeypatch.setattr(sys, "argv", [])
    monkeypatch.setenv("LATTEMIX_STORE", str(store.root))
    monkeypatch.setenv("LATTEMIX_MODEL", "tiny")


def test_similarity_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "similarity", "a dog", "a dog", "--metrics", "cosine,js,centred")
    assert (code, err) == (0, "")
    assert out.split() == ["cosine", "1.0000", "js", "1.0000", "centred", "1.0000"]


def test_a_cut_is_noted_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "similarity", "a dog", "dog " * 40)
    assert code == 0
    assert out.startswith("cosine")
    assert "only the first 16 tokens of a sentence are read" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["similarity", "a", " "], "Text 2 is empty: the model finds no words in it"),
        (["serve", "--host", "a..b"], "Cannot listen on a..b:8000"),
        (["models", "--store", "x" * 300], "File name too long"),
        (["similarity", "a", "b", "--metrics", "euclid"], "--metrics euclid: choose among cosine"),
        (["similarity", "a", "b", "--model", "none"], "There is no model 'none'"),
        (["similarity", "a", "b", "--store", "/nonexistent"], "it holds nothing yet"),
        (["serve", "--port", "70000"], "--port=70000: Input should be less than or equal to 65535"),
        (["build", "--head", "/nonexistent"], "is not a head"),
    ],
)
def test_failures_are_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 1
    assert out == ""
    assert err.startswith("lattemix: ")
    assert says in err
    assert "\n" not in err.strip()


def test_models_lists_and_verifies(
    capsys: pytest.CaptureFixture[str], private_store: Store, tmp_path: Path
) -> None:
    code, out, _ = run(capsys, "models", "--store", str(private_store.root))
    assert code == 0
    assert out.startswith("tiny:fp32")
    assert "4x5" in out
    assert "verified" in out
    (private_store.root / "tiny/fp32/tokenizer.json").write_text("{}")
    code, out, _ = run(capsys, "models", "--store", str(private_store.root))
    assert code == 1
    assert "refused" in out
    code, out, _ = run(capsys, "models", "--store", str(tmp_path / "none"))
    assert code == 0
    assert "holds no models yet" in out


def test_build_publishes_under_the_heads_name(
    capsys: pytest.CaptureFixture[str], head_directory: Path, backbone: Path, tmp_path: Path
) -> None:
    options = ["--head", str(head_directory), "--backbone", str(backbone), "--store", str(tmp_path)]
    code, _, err = run(capsys, "build", *options)
    assert code == 0
    assert "tiny:fp32 is ready" in err
    assert Store(tmp_path).open("tiny").manifest.name == "tiny"


def test_a_port_in_use_is_found_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        code, _, err = run(capsys, "serve", "--port", port, "--model", "not-even-looked-for")
    assert code == 1
    assert f"Cannot listen on 127.0.0.1:{port}: Address already in use. Choose another" in err


def test_a_wrong_setting_names_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATTEMIX_TOKEN_BUDGET", "many")
    with pytest.raises(LatteMixError, match="LATTEMIX_TOKEN_BUDGET=many: Input should be a valid"):
        load_settings()


def test_flags_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LATTEMIX_PORT", "9000")
    assert load_settings().port == 9000
    assert load_settings(port=None).port == 9000
    assert load_settings(port=9001).port == 9001
    assert Settings.model_fields["port"].default == 8000


@pytest.mark.parametrize(("module", "extra"), [("onnxruntime", "cpu"), ("onnx.helper", "export")])
def test_a_missing_extra_is_named(module: str, extra: str) -> None:
    def command() -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    with pytest.raises(
        SystemExit, match=rf"this needs {module}: pip install 'lattemix\[{extra}\]'"
    ):
        cli.complete(command, "lattemix")


def test_a_bug_is_not_dressed_up_as_a_missing_extra() -> None:
    def command() -> None:
        raise ModuleNotFoundError("No module named 'typo'", name="typo")

    with pytest.raises(ModuleNotFoundError, match="typo"):
        cli.complete(command, "lattemix")


@pytest.mark.parametrize("stop", ["SIGINT", "SIGTERM"])
def test_serve_answers_then_stops_cleanly(store: Store, stop: str) -> None:
    import signal

    import httpx

    command = [LATTEMIX, "serve", "--port", "0", "--store", str(store.root), "--model", "tiny"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            line = next(line for line in server.stderr if "curl" in line)
            url = line.split()[1].removesuffix("/similarity")
            answer = httpx.post(f"{url}/similarity", json={"pairs": [["a dog", "a dog"]]})
            assert answer.json()["similarities"][0]["cosine"] == pytest.approx(1)
            server.send_signal(getattr(signal, stop))
            assert server.wait(10) == 0
        finally:
            server.kill()
