import csv
import io
import json
import logging
import re
import socket
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray
from pyarrow import parquet

from app import bulk, cli, failures
from app.client import Client
from app.engine import Encoder
from app.server import create_app
from app.settings import Settings, load_settings
from app.tables import read_texts
from model_store import LatteMixError, Store
from tests.conftest import SENTENCES


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
    # `serve` sends the log to what is standard error during its test.
    monkeypatch.setattr(logging.getLogger("lattemix"), "handlers", [])
    monkeypatch.setenv("LATTEMIX_STORE", str(store.root))
    monkeypatch.setenv("LATTEMIX_MODEL", "tiny")


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


ROWS = 'a,b\na dog,a dog\na dog,"the sea\nwas calm"\na dog, \na dog,the sea\n'


def test_a_file_of_pairs(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, out = tmp_path / "pairs.csv", tmp_path / "scores.csv"
    file.write_text(ROWS)
    code, printed, err = run(capsys, "similarity", "--file", str(file), "--out", str(out))
    assert (code, printed) == (1, "")
    assert err == (
        "1 of 4 were refused, the first because: pairs[2][1] is empty: the model finds no words "
        "in it.\n"
    )
    with out.open(newline="") as scores:
        rows = list(csv.DictReader(scores))
    assert [*rows[0]] == ["a", "b", "cosine", "js", "error"]
    assert [row["b"] for row in rows] == ["a dog", "the sea\nwas calm", " ", "the sea"]
    assert float(rows[0]["cosine"]) == pytest.approx(1)
    assert 0 < float(rows[1]["js"]) < 1
    assert (rows[2]["cosine"], rows[2]["js"]) == ("", "")
    assert rows[2]["error"].startswith("pairs[2][1] is empty")
    assert rows[3]["error"] == ""


def test_pairs_from_standard_input_to_json_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "a dog\ta dog\n" * 3000  # more than are in flight at once
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    code, out, err = run(capsys, "similarity", "--file", "-", "--metrics", "l2")
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    assert len(rows) == 3000
    assert rows[0] == {"a": "a dog", "b": "a dog", "l2": pytest.approx(0, abs=1e-6)}


def test_what_was_cut_is_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    long = "dog " * 40
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps([long, "a dog"]) + "\n" + json.dumps([long, long]) + "\n")
    code, _, err = run(capsys, "similarity", "--file", str(file))
    assert code == 0
    assert err == "Note: only the first 16 tokens of a sentence are read; 3 had more.\n"
    code, _, err = run(capsys, "embed", long, "a dog")
    assert "1 had more" in err
    code, _, err = run(capsys, "rank", long, long, "a dog")
    assert "2 had more" in err


def test_a_wrong_line_is_found_before_the_model_is_loaded(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file, out = tmp_path / "pairs.csv", tmp_path / "scores.csv"
    file.write_text("a,b\n1,2\n3\n")
    options = ["--file", str(file), "--out", str(out), "--model", "not-even-looked-for"]
    code, _, err = run(capsys, "similarity", *options)
    assert (code, err) == (1, f"lattemix: {file}, line 3: expected 2 columns, found 1.")
    assert [*tmp_path.iterdir()] == [file]


@pytest.mark.parametrize("kind", ["json", "jsonl", "csv", "tsv", "parquet", "npy"])
def test_embed_in_every_format(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str, encoder: Encoder
) -> None:
    file, out = tmp_path / "sentences.txt", tmp_path / f"mixtures.{kind}"
    file.write_text("\n".join([*SENTENCES, "", "a dog\n"]))
    code, _, err = run(capsys, "embed", "--file", str(file), "--out", str(out))
    assert code == 1
    assert err.startswith("1 of 12 were refused, the first because: inputs[10] is empty")
    found = _mixtures(out)
    assert found.shape[0] == 12
    assert found[0].shape == ((20,) if kind in ("csv", "tsv", "parquet") else (4, 5))
    assert np.isnan(found[10]).all()
    expected = encoder.encode([*SENTENCES, "a dog"]).mixtures
    mixtures = np.delete(found, 10, axis=0).reshape(11, 4, 5)
    np.testing.assert_allclose(mixtures, expected, atol=1e-6)


def _mixtures(out: Path) -> NDArray[np.float32]:
    """What `embed` wrote; where there is none, NaN."""
    if out.suffix == ".npy":
        found: NDArray[np.float32] = np.load(out)
        return found
    if out.suffix in (".csv", ".tsv"):
        delimiter = "," if out.suffix == ".csv" else "\t"
        lines = list(csv.reader(out.open(), delimiter=delimiter))[1:]
        return np.array([[cell or "nan" for cell in line[1:-1]] for line in lines], "f4")
    if out.suffix == ".parquet":
        rows = parquet.read_table(out).to_pylist()
    elif out.suffix == ".json":
        rows = json.loads(out.read_bytes())
    else:
        rows = [json.loads(line) for line in out.read_bytes().splitlines()]
    none = np.full_like(rows[0]["embedding"], np.nan)
    return np.array([row.get("embedding") or none for row in rows], "f4")


def test_embed_prints_json_lines(capsys: pytest.CaptureFixture[str], encoder: Encoder) -> None:
    code, out, err = run(capsys, "embed", "a dog", "--format", "sparse")
    assert (code, err) == (0, "")
    row = json.loads(out)
    weights = encoder.encode(["a dog"]).mixtures.ravel()
    assert row["text"] == "a dog"
    assert row["embedding"]["indices"] == np.flatnonzero(weights >= 0.01).tolist()
    kept = weights[row["embedding"]["indices"]]
    np.testing.assert_allclose(row["embedding"]["values"], kept, atol=1e-6)
    code, out, _ = run(capsys, "embed", "a dog", "--format", "flat")
    np.testing.assert_allclose(json.loads(out)["embedding"], weights, atol=1e-6)


def test_rank_prints_the_most_similar_first(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "rank", "the sea", "a dog", "the sea", "a man", "--top-k", "2")
    assert (code, err) == (0, "")
    first, second = out.splitlines()
    assert first == "1.0000  the sea"
    assert float(second.split()[0]) < 1
    code, out, err = run(capsys, "rank", "the sea", " ", "the sea")
    assert code == 1
    assert out == "1.0000  the sea\n"
    assert "candidates[0] is empty" in err


def test_a_file_of_candidates(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, out = tmp_path / "candidates.csv", tmp_path / "ranks.json"
    file.write_text("id,text\n" + "".join(f"{i},{text}\n" for i, text in enumerate(SENTENCES)))
    with file.open("a") as lines:
        lines.write("10, \n")
    options = ["--metric", "cosine", "--file", str(file)]
    code, _, err = run(capsys, "rank", SENTENCES[3], *options, "--out", str(out))
    assert code == 1
    assert "1 of 11 were refused, the first because: candidates[10] is empty" in err
    rows = json.loads(out.read_bytes())
    assert rows[0] == {"index": 3, "score": pytest.approx(1), "text": SENTENCES[3]}
    scores = [row["score"] for row in rows[:10]]
    assert scores == sorted(scores, reverse=True)
    assert sorted(row["index"] for row in rows) == list(range(11))
    assert rows[10]["error"].startswith("candidates[10] is empty")
    code, printed, _ = run(capsys, "rank", SENTENCES[3], *options, "--top-k", "1")
    assert [json.loads(line)["index"] for line in printed.splitlines()] == [3, 10]


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

    monkeypatch.setattr("app.bulk.Client", through)
    code, out, err = run(capsys, "similarity", "a dog", "a dog", "--url", "http://elsewhere:8000")
    app.state.service.engine.close()
    assert (code, err) == (0, "")
    assert out.split() == ["cosine", "1.0000", "js", "1.0000"]
    assert asked == ["http://elsewhere:8000"]


def test_a_bar_is_for_a_terminal_that_shows_no_results(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "x.txt"
    file.write_text("1\n2\n")

    def shown(stderr: bool, stdout: bool, out: Path | None) -> bool:
        monkeypatch.setattr(sys.stderr, "isatty", lambda: stderr)
        monkeypatch.setattr(sys.stdout, "isatty", lambda: stdout)
        rows = bulk.Rows.read(read_texts, file, out)
        assert rows.total == 2
        return rows.bar

    assert shown(True, True, Path("x.csv"))
    assert shown(True, False, None)
    assert not shown(True, True, None)
    assert not shown(False, True, Path("x.csv"))


@pytest.mark.parametrize("installed", [True, False])
def test_the_bar_counts_what_is_done(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, installed: bool
) -> None:
    if not installed:
        monkeypatch.setitem(sys.modules, "tqdm", None)
    rows = bulk.Rows(["a", "b", "c"], total=3, bar=True)
    assert list(rows.answered(iter)) == [("a", "a"), ("b", "b"), ("c", "c")]
    assert ("3.00/3.00" in capsys.readouterr().err) is installed


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
