import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from fastapi.testclient import TestClient

from app.server import create_app
from app.settings import Settings
from lattemix import __version__
from lattemix import cli as cli_module
from lattemix.client import Client
from model_store import Store
from tests.lattemix.conftest import run

pytestmark = pytest.mark.usefixtures("lattemix_environment")


def test_prints_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--version") == (0, f"lattemix {__version__}\n", "")


def test_similarity_prints_a_metric_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "similarity", "a dog", "a dog", "--metrics", "cosine,js,centred")
    assert (code, err) == (0, "")
    assert out.split() == ["cosine", "1.0000", "js", "1.0000", "centred", "1.0000"]


def test_explain_prints_aligned_words_and_meanings(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "explain", "a dog", "a dog", "--metric", "cosine")
    assert (code, err) == (0, "")
    first, *rest = out.splitlines()
    assert first.split() == ["cosine", "1.0000"]
    assert rest[1:4] == ["Aligned words:", "  1.000  a ~ a", "  1.000  dog ~ dog"]
    assert rest[5] == "Shared meanings:"
    assert "Unshared meanings:" in rest
    assert all(re.match(r"  [+-]\d\.\d{3}  \w", line) for line in rest[6:10])


@pytest.mark.parametrize("command", ["explain", "rank"])
@pytest.mark.parametrize("metric", ["euclid", "cosine,js"])
def test_rejects_a_metric_that_is_not_exactly_one(
    capsys: pytest.CaptureFixture[str], command: str, metric: str
) -> None:
    code, out, err = run(capsys, command, "a dog", "a man", "--metric", metric)
    assert (code, out) == (2, "")
    assert f"'{metric}' is not one of 'cosine'" in " ".join(err.replace("│", "").split())


def test_notes_truncation_beside_the_result(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "similarity", "a dog", "dog " * 40, "--truncate", "right")
    assert code == 0
    assert out.startswith("centred")
    assert err == "Note: 1 sentences had more than 16 tokens and were truncated.\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["similarity", "a", " "], "b is empty: the model finds no words in it"),
        (["serve", "--host", "a..b"], "Cannot listen on a..b:8000"),
        (["models", "--store", "x" * 300], "File name too long"),
        (["similarity", "a", "b", "--metrics", "euclid"], "--metrics euclid: choose among cosine"),
        (["similarity", "a", "b", "--metrics", ""], "--metrics : choose among cosine"),
        (["similarity", "a", "b", "--model", "none"], "There is no model 'none'"),
        (["similarity", "a", "b", "--store", "missing/store"], "it holds nothing yet"),
        (["serve", "--port", "70000"], "--port=70000: Input should be less than or equal to 65535"),
        (["build", "--head", "missing/head"], "is not a head"),
        (["build", "--name", "mine"], "--name mine is for one model: name its head with --head."),
        (["explain", "a", ""], "Text 2 is empty"),
        (["similarity", "a"], "Give two sentences, or --file."),
        (["similarity", "a", "b", "--file", "x.csv"], "Give two sentences, or --file."),
        (["similarity", "--file", "x.csv"], "x.csv: No such file or directory."),
        (["similarity", "--file", "x.parquet"], "x.parquet"),
        (["similarity", "--file", "x.doc"], "x.doc: pairs are read from .csv"),
        (["similarity", "a", "b", "--out", "x.doc"], "x.doc: these results are written to .csv"),
        (["similarity", "a", "b", "--out", "none/x.csv"], "there is no directory none."),
        (["embed", "\udcff"], "A sentence on the command line is not UTF-8 text."),
        (["similarity", "\udcff", "b"], "A sentence on the command line is not UTF-8 text."),
        (["rank", "\udcff", "b"], "A sentence on the command line is not UTF-8 text."),
        (["explain", "\udcff", "b"], "A sentence on the command line is not UTF-8 text."),
        (["similarity", "a", "b", "--url", "http://HOST:PORT"], "http://HOST:PORT does not answer"),
        (
            ["rank", "a", "b", "--url", "http://x", "--store", "store"],
            "--url cannot be combined with --store",
        ),
        (["embed"], "Give sentences, or --file."),
        (["embed", "a", "--file", "x.txt"], "Give sentences, or --file."),
        (["embed", "a", "--format", "dense", "--out", "x.csv"], "--format dense: .csv holds flat."),
        (["rank", "a"], "Give sentences, or --file."),
        (["rank", "a", "b", "--out", "x.npy"], ".jsonl, .parquet."),
        (["rank", "a", "b", "--mixtures", "x.npy"], "--mixtures cannot be combined with sentences"),
        (["rank", "a", "--mixtures", "x.npy"], "x.npy: No such file or directory."),
        (["rank", "a", "--mixtures", "x.txt"], "x.txt: mixtures are read from .csv"),
        (["serve", "--model", "a", "--models", "b"], "--model cannot be combined with --models"),
        (["rank", " ", "b"], "query is empty: the model finds no words in it."),
        (["score", ".", "x", "--workers", "2"], "--workers is for --engine ray"),
    ],
)
def test_errors_are_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 1
    assert out == ""
    assert err.startswith("lattemix: ")
    assert message in err
    assert "\n" not in err.strip()


def test_measure_prints_throughput_by_length(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "measure", "--seconds", "0", "--provider", "cpu")
    assert (code, err) == (0, "")
    title, heading, *rows = out.splitlines()
    assert re.match(r"tiny:fp32 on cpu: batches of \d{3} tokens, \d+ at once$", title)
    assert heading.startswith("tokens/sentence  sentences/s  tokens/s")
    numbers = [[float(number.replace(",", "")) for number in row.split()] for row in rows]
    assert [row[0] for row in numbers] == [8, 16]  # the model's maximum length
    for length, sentences, tokens, milliseconds in numbers:
        assert tokens == pytest.approx(sentences * length, abs=length)
        assert milliseconds >= 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["similarity", "a dog", "a dog"], ["centred", "1.0000"]),
        (["similarity", "a dog", "a dog", "--metrics", "js,l2"], ["js", "1.0000", "l2", "0.0000"]),
        (["rank", "a dog", "a dog"], ["1.0000", "a", "dog"]),
        (["explain", "a dog", "a dog", "--metric", "js"], ["js", "1.0000", "Aligned", "words:"]),
        (["embed", "a dog"], ['{"text":"a', 'dog","embedding":[[']),
    ],
)
def test_url_uses_a_server_instead_of_a_model(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    settings: Settings,
    arguments: list[str],
    expected: list[str],
) -> None:
    monkeypatch.setenv("LATTEMIX_MODEL", "none")
    monkeypatch.setenv("LATTEMIX_API_KEY", "secret")
    guarded = settings.model_copy(update={"api_keys": Settings(api_keys="secret").api_keys})
    app = create_app(guarded)
    urls = []

    def connect(url: str, model: str | None) -> Client:
        urls.append(url)
        return Client(url, model=model, transport=httpx.ASGITransport(app))

    monkeypatch.setattr("lattemix.bulk.commands.Client", connect)
    with TestClient(app):
        code, out, err = run(capsys, *arguments, "--url", "http://elsewhere:8000")
    assert (code, err) == (0, "")
    for word, start in zip(out.split(), expected, strict=False):
        assert word.startswith(start)
    assert urls == ["http://elsewhere:8000"]


def test_url_needs_no_onnx_runtime() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(['onnxruntime', 'tokenizers', 'fastapi'])); "
        "sys.argv = ['lattemix', 'similarity', 'a', 'b', '--url', 'http://HOST:PORT']; "
        "from lattemix.cli import main; main()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.startswith("lattemix: http://HOST:PORT does not answer")


def test_models_lists_and_verifies_the_store(
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
    assert "rejected: " in out
    code, out, _ = run(capsys, "models", "--store", str(tmp_path / "none"))
    assert code == 0
    assert "holds no models yet" in out


def test_build_names_the_model_after_the_head(
    capsys: pytest.CaptureFixture[str], head_directory: Path, backbone: Path, tmp_path: Path
) -> None:
    options = ["--head", str(head_directory), "--backbone", str(backbone), "--store", str(tmp_path)]
    code, _, err = run(capsys, "build", *options)
    assert code == 0
    assert "tiny:int8 is ready" in err
    assert [entry.reference for entry in Store(tmp_path).entries()] == ["tiny:int8"]


def test_build_assembles_every_default_model_in_the_requested_precision(
    capsys: pytest.CaptureFixture[str],
    head_directory: Path,
    backbone: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("one", "two", "three"):
        shutil.copytree(head_directory, tmp_path / name)
    monkeypatch.setattr(cli_module, "HEADS", tmp_path)
    monkeypatch.setattr(cli_module, "DEFAULT_MODELS", ("one", "two"))
    store = tmp_path / "store"
    options = ["--backbone", str(backbone), "--store", str(store), "--precision", "fp32"]
    code, _, err = run(capsys, "build", *options)
    assert code == 0
    assert "two:fp32 is ready" in err
    assert [entry.reference for entry in Store(store).entries()] == ["one:fp32", "two:fp32"]


def test_serve_checks_the_port_before_it_loads_the_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = str(listener.getsockname()[1])
        code, _, err = run(capsys, "serve", "--port", port, "--model", "missing")
    assert code == 1
    assert f"Cannot listen on 127.0.0.1:{port}: Address already in use. Choose another" in err


@pytest.mark.parametrize(
    ("flag", "models"),
    [
        (["--models", "tiny,fast:int8"], ("tiny", "fast:int8")),
        (["--model", "tiny"], ("tiny",)),
        ([], ("other",)),
    ],
)
def test_serve_flags_take_precedence_over_the_environment(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    flag: list[str],
    models: tuple[str, ...],
) -> None:
    served: list[Settings] = []
    monkeypatch.setattr("app.run.run", served.append)
    monkeypatch.setenv("LATTEMIX_MODELS", "other")
    assert run(capsys, "serve", *flag) == (0, "", "")
    assert served[0].models == models
