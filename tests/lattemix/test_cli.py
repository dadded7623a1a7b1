import re
import socket
from pathlib import Path

import httpx
import pytest

from app.server import create_app
from app.settings import Settings, load_settings
from lattemix import failures
from lattemix.client import Client
from model_store import LatteMixError, Store
from tests.app.conftest import run

pytestmark = pytest.mark.usefixtures("lattemix_environment")


def test_similarity_without_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "similarity", "a dog", "a dog", "--metrics", "cosine,js,centred")
    assert (code, err) == (0, "")
    assert out.split() == ["cosine", "1.0000", "js", "1.0000", "centred", "1.0000"]


def test_explain_tells_words_and_meanings(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "explain", "a dog", "a dog", "--metric", "cosine")
    assert (code, err) == (0, "")
    first, *rest = out.splitlines()
    assert first.split() == ["cosine", "1.0000"]
    assert rest[1:4] == ["Words that meet:", "  1.000  a ~ a", "  1.000  dog ~ dog"]
    assert rest[5] == "Shared meanings:"
    assert "Unshared meanings:" in rest
    assert all(re.match(r"  [+-]\d\.\d{3}  \w", line) for line in rest[6:10])


@pytest.mark.parametrize("command", ["explain", "rank"])
@pytest.mark.parametrize("metric", ["euclid", "cosine,js"])
def test_refuses_a_metric_that_is_not_exactly_one(
    capsys: pytest.CaptureFixture[str], command: str, metric: str
) -> None:
    code, out, err = run(capsys, command, "a dog", "a man", "--metric", metric)
    assert (code, out) == (2, "")
    assert f"'{metric}' is not one of 'cosine'" in " ".join(err.replace("│", "").split())


def test_a_cut_is_noted_beside_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "similarity", "a dog", "dog " * 40)
    assert code == 0
    assert out.startswith("cosine")
    assert "only the first 16 tokens of a sentence are read" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["similarity", "a", " "], "pairs[0][1] is empty: the model finds no words in it"),
        (["serve", "--host", "a..b"], "Cannot listen on a..b:8000"),
        (["models", "--store", "x" * 300], "File name too long"),
        (["similarity", "a", "b", "--metrics", "euclid"], "--metrics euclid: choose among cosine"),
        (["similarity", "a", "b", "--model", "none"], "There is no model 'none'"),
        (["similarity", "a", "b", "--store", "/nonexistent"], "it holds nothing yet"),
        (["serve", "--port", "70000"], "--port=70000: Input should be less than or equal to 65535"),
        (["build", "--head", "/nonexistent"], "is not a head"),
        (["explain", "a", ""], "pair[1] is empty"),
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
        (["similarity", "a", "b", "--url", "http://HOST:PORT"], "http://HOST:PORT does not answer"),
        (["rank", "a", "b", "--url", "http://x", "--model", "tiny"], "--url for another: choose."),
        (["embed"], "Give sentences, or --file."),
        (["embed", "a", "--file", "x.txt"], "Give sentences, or --file."),
        (["embed", "a", "--format", "dense", "--out", "x.csv"], "--format dense: .csv holds flat."),
        (["rank", "a"], "Give sentences, or --file."),
        (["rank", "a", "b", "--out", "x.npy"], ".jsonl, .parquet."),
        (["rank", " ", "b"], "query is empty: the model finds no words in it."),
        (["score", ".", "x", "--workers", "2"], "--workers is for --engine ray"),
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


def test_measure_says_how_fast_the_model_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "measure", "--seconds", "0", "--provider", "cpu")
    assert (code, err) == (0, "")
    what, heading, *rows = out.splitlines()
    assert re.match(r"tiny:fp32 on cpu: batches of \d{3} tokens, \d+ at once$", what)
    assert heading.startswith("tokens in each  sentences/s  tokens/s")
    numbers = [[float(number.replace(",", "")) for number in row.split()] for row in rows]
    assert [row[0] for row in numbers] == [8, 16]  # it reads no more
    for length, sentences, tokens, milliseconds in numbers:
        assert tokens == pytest.approx(sentences * length, abs=length)
        assert milliseconds >= 0


def test_a_server_that_is_elsewhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, settings: Settings
) -> None:
    # The environment's model would do, but it is the server's that is asked.
    monkeypatch.setenv("LATTEMIX_MODEL", "none")
    monkeypatch.setenv("LATTEMIX_API_KEY", "secret")
    guarded = settings.model_copy(update={"api_keys": Settings(api_keys="secret").api_keys})
    app = create_app(guarded)
    asked = []

    def through(url: str) -> Client:
        asked.append(url)
        return Client(url, transport=httpx.ASGITransport(app))

    monkeypatch.setattr("lattemix.bulk.commands.Client", through)
    code, out, err = run(capsys, "similarity", "a dog", "a dog", "--url", "http://elsewhere:8000")
    app.state.service.engine.close()
    assert (code, err) == (0, "")
    assert out.split() == ["cosine", "1.0000", "js", "1.0000"]
    assert asked == ["http://elsewhere:8000"]


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


@pytest.mark.parametrize(
    ("module", "extra"),
    [
        ("onnxruntime", "cpu"),
        ("onnx.helper", "export"),
        ("httpx", "client"),
        ("pyarrow", "parquet"),
    ],
)
def test_a_missing_extra_is_named(module: str, extra: str) -> None:
    def command() -> None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    with pytest.raises(
        SystemExit, match=rf"this needs {module}: pip install 'lattemix\[{extra}\]'"
    ):
        failures.complete(command, "lattemix")


def test_a_bug_is_not_dressed_up_as_a_missing_extra() -> None:
    def command() -> None:
        raise ModuleNotFoundError("No module named 'typo'", name="typo")

    with pytest.raises(ModuleNotFoundError, match="typo"):
        failures.complete(command, "lattemix")
