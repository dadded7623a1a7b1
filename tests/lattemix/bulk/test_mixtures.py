"""Files of mixtures: `lattemix embed`, then `lattemix rank --mixtures`."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import numpy as np
import pyarrow
import pytest
from fastapi.testclient import TestClient
from pyarrow import parquet

from app.server import create_app
from app.settings import Settings
from lattemix.bulk.mixtures import read_mixtures
from lattemix.client import Client
from model_store import Artifact, LatteMixError
from tests.lattemix.conftest import run
from tests.tiny import SENTENCES

pytestmark = pytest.mark.usefixtures("lattemix_environment")

KINDS = ["json", "jsonl", "csv", "tsv", "parquet", "npy"]

Embed = Callable[..., Path]


@pytest.fixture
def embed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Embed:
    """Write the mixtures of sentences with `lattemix embed`."""

    def embed(name: str, *options: str, texts: list[str] = SENTENCES) -> Path:
        sentences, out = tmp_path / "sentences.txt", tmp_path / name
        sentences.write_text("\n".join(texts) + "\n")
        run(capsys, "embed", "--file", str(sentences), "--out", str(out), *options)
        return out

    return embed


@pytest.mark.parametrize("kind", KINDS)
def test_ranks_the_mixtures_of_every_file_type(
    capsys: pytest.CaptureFixture[str], embed: Embed, tmp_path: Path, kind: str
) -> None:
    file = embed(f"x.{kind}")
    code, out, err = run(capsys, "rank", "a dog", "--mixtures", str(file), "--top-k", "4")
    assert (code, err) == (0, "")
    rows = [json.loads(line) for line in out.splitlines()]
    sentences = tmp_path / "sentences.txt"
    _, out, _ = run(capsys, "rank", "a dog", "--file", str(sentences), "--top-k", "4")
    expected = [json.loads(line) for line in out.splitlines()]
    for row, other in zip(rows, expected, strict=True):
        if kind == "npy":
            del other["text"]
        assert row == {**other, "score": pytest.approx(other["score"], abs=1e-5)}


@pytest.mark.parametrize("kind", KINDS)
def test_skips_and_reports_rows_without_a_mixture(
    capsys: pytest.CaptureFixture[str], embed: Embed, tmp_path: Path, kind: str
) -> None:
    file, out = embed(f"x.{kind}", texts=["a dog", "", "the sea", " "]), tmp_path / "ranks.json"
    code, _, err = run(capsys, "rank", "the sea", "--mixtures", str(file), "--out", str(out))
    assert code == 1
    assert err == "2 of 4 rows were rejected; the first is row 2: it has no mixture.\n"
    rows = json.loads(out.read_bytes())
    assert [row["index"] for row in rows] == [2, 0, 1, 3]
    assert rows[2]["error"] == "it has no mixture."


@pytest.mark.parametrize("kind", KINDS)
def test_rejects_mixtures_of_another_model(
    capsys: pytest.CaptureFixture[str],
    embed: Embed,
    two_models: Settings,
    artifact: Artifact,
    kind: str,
) -> None:
    store = str(two_models.store)
    file = embed(f"x.{kind}", "--store", store, "--model", "static")
    static = next(read_mixtures(file)).fingerprint
    code, out, err = run(capsys, "rank", "a dog", "--mixtures", str(file))
    assert (code, out) == (1, "")
    own = artifact.manifest.fingerprint
    assert err.startswith(
        f"lattemix: {file}, row 1: the fingerprint is {static}, and model tiny has {own}: choose"
    )
    options = ["--mixtures", str(file), "--store", store, "--model", "static"]
    code, out, err = run(capsys, "rank", "a dog", *options)
    assert (code, err, len(out.splitlines())) == (0, "", 10)


def test_rejects_mixtures_without_a_fingerprint(
    capsys: pytest.CaptureFixture[str], embed: Embed, artifact: Artifact, tmp_path: Path
) -> None:
    file = embed("x.npy")
    (tmp_path / "x.npy.json").unlink()
    plain = tmp_path / "plain.parquet"
    parquet.write_table(pyarrow.table({"embedding": np.load(file).reshape(10, 20).tolist()}), plain)
    for path in (file, plain):
        code, _, err = run(capsys, "rank", "a dog", "--mixtures", str(path))
        assert code == 1
        own = artifact.manifest.fingerprint
        assert f"{path}, row 1: there is no fingerprint, and model tiny has {own}" in err


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.jsonl", "{\n", "x.jsonl is not JSON: "),
        ("x.jsonl", '{"text": "a"}\n', "x.jsonl, line 1: expected an object with embedding."),
        ("x.jsonl", '{"embedding": [[1], [1, 2]]}', "line 1: the embedding is not an array of num"),
        ("x.jsonl", '{"embedding": {"indices": []}}', "line 1: a sparse mixture is incomplete"),
        ("x.json", "{}", "x.json: expected a list of objects."),
        ("x.csv", "text,error\na,\n", "expected a column embedding; found text, error."),
        ("x.csv", "text,embedding_0\na\n", "x.csv, line 2: expected 2 columns, found 1."),
        ("x.csv", "embedding_0\nx\n", "x.csv, line 2: the embedding is not an array of numbers."),
        ("x.parquet", "no", "x.parquet cannot be read as Parquet: "),
        ("x.npy", "no", "x.npy cannot be read as npy: "),
    ],
)
def test_names_an_invalid_row(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(LatteMixError) as raised:
        list(read_mixtures(tmp_path / name))
    assert message in str(raised.value)


def test_names_an_array_of_another_shape(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(3))
    with pytest.raises(LatteMixError, match=r"\[N, L, C\] or \[N, L\*C\], found float64 \(3,\)"):
        next(read_mixtures(tmp_path / "x.npy"))


def test_names_a_mixture_of_another_shape(
    capsys: pytest.CaptureFixture[str], artifact: Artifact, tmp_path: Path
) -> None:
    row = {"embedding": [0.5, 0.5], "fingerprint": artifact.manifest.fingerprint}
    (tmp_path / "x.jsonl").write_text(json.dumps(row))
    code, _, err = run(capsys, "rank", "a dog", "--mixtures", str(tmp_path / "x.jsonl"))
    assert (code, err.startswith("lattemix: mixtures[0] has shape (2,)")) == (1, True)


def test_truncate_applies_to_the_query(capsys: pytest.CaptureFixture[str], embed: Embed) -> None:
    options = ["dog " * 40, "--mixtures", str(embed("x.npy")), "--truncate"]
    code, _, err = run(capsys, "rank", *options, "right")
    assert (code, "1 sentences had more" in err) == (0, True)
    code, _, err = run(capsys, "rank", *options, "error")
    assert (code, "query has 42 tokens" in err) == (1, True)


def test_url_with_model_uses_that_model_of_the_server(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    two_models: Settings,
    embed: Embed,
) -> None:
    app = create_app(two_models)

    def connect(url: str, model: str | None) -> Client:
        return Client(url, model=model, transport=httpx.ASGITransport(app))

    monkeypatch.setattr("lattemix.bulk.commands.Client", connect)
    server = ["--url", "http://server", "--model", "static"]
    with TestClient(app):
        file = embed("x.jsonl", *server)
        assert json.loads(file.read_text().splitlines()[0])["model"] == "static"
        options = ["--mixtures", str(file), "--metric", "js", "--top-k", "1"]
        code, out, err = run(capsys, "rank", SENTENCES[3], *options, *server)
        assert (code, err, json.loads(out)["index"]) == (0, "", 3)
        code, _, err = run(capsys, "rank", SENTENCES[3], *options, "--url", "http://server")
        assert (code, "and model tiny has" in err) == (1, True)
