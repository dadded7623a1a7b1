"""The built wheel, in a folder whose own packages are called `app` and `training`."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

import lattemix
from model_store import Store
from tests.app import conftest as app_conftest
from tests.app.conftest import serving

ROOT = Path(__file__).parent.parent

PROGRAM = """
import json

import app
import training

import lattemix

model = lattemix.load()
pairs = [("a man is eating", "someone is having lunch"), ("the sea was calm", "the dog runs")]
texts = ["the sea was calm", "someone is having lunch"]
scores = model.similarity(pairs, metrics=["cosine", "js"])
explanation = model.explain(*pairs[0])
print(json.dumps({
    "packages": [module.__file__ for module in (app, training, lattemix)],
    "similarity": model.similarity(*pairs[0]),
    "metrics": {metric: values.tolist() for metric, values in scores.items()},
    "encode": model.encode(texts).shape,
    "rank": [result.text for result in model.rank(texts[1], texts)],
    "explain": [explanation.similarity, sum(token.contribution for token in explanation.a.tokens)],
}))
"""
CLIENT = """
import sys

import lattemix

pair = ("a man is eating", "someone is having lunch")
with lattemix.Client(sys.argv[1]) as client:
    print(client.info().model, client.explain(*pair).similarity)
print(lattemix.AsyncClient.__name__, lattemix.load().explain(*pair).similarity)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory, cwd=ROOT)
    (path,) = directory.iterdir()
    return path


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Interpreter with the wheel and the dependencies installed here, without the checkout."""
    root = tmp_path_factory.mktemp("venv")
    venv.create(root)
    python = root / "bin" / "python"
    install = ("install", "--quiet", "--no-index", "--no-deps", wheel)
    run(sys.executable, "-m", "pip", "--python", python, *install, cwd=root)
    (packages,) = root.glob("lib/python*/site-packages")
    # A directory named in a .pth file is searched, but its own .pth files are not read: the
    # editable installation of the checkout stays out.
    paths = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (packages / "dependencies.pth").write_text("\n".join(paths), encoding="utf-8")
    return python


@pytest.fixture
def folder(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory of a project with its own `app` and `training`."""
    for package in ("app", "training"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("LATTEMIX_STORE", str(store.root))
    monkeypatch.setenv("LATTEMIX_MODEL", "tiny")
    return tmp_path


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_bytes(archive.read(name))


def run(*command: object, cwd: Path) -> str:
    outcome = subprocess.run(
        [str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stdout + outcome.stderr
    return outcome.stdout


def test_wheel_holds_types_and_heads_but_no_models_or_tests(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    packages = ("app", "lattemix", "model_store", "training")
    assert {f"{package}/py.typed" for package in packages} <= names
    assert "app/playground/index.html" in names
    for head in (path for path in (ROOT / "model_store/heads").iterdir() if path.is_dir()):
        files = ("head.json", "head.safetensors", "latents.json")
        assert {f"model_store/heads/{head.name}/{file}" for file in files} <= names
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == set(packages)
    assert not any(name.startswith("model_store/artifacts/") for name in names)


def test_metadata_names_the_version_and_the_repository(metadata: Message) -> None:
    assert metadata["Version"] == lattemix.__version__
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    urls = dict(url.split(", ") for url in metadata.get_all("Project-URL"))
    assert urls == project["urls"]
    assert all(url.startswith(urls["Repository"]) for url in urls.values())


def test_links_of_the_readme_work_outside_the_repository(metadata: Message) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    description = metadata.get_payload(decode=True).decode()
    blob, raw = (
        f"https://github.com/latte-mix/latte-mix/{kind}/v{lattemix.__version__}/"
        for kind in ("blob", "raw")
    )
    assert not re.findall(r"\]\((?!https?://|#)[^)]*", description)
    assert f"]({blob}docs/" in description
    images = re.findall(r"!\[[^\]]*\]\((?!https?:)", readme)
    assert description.count(f"]({raw}") == len(images)
    assert description.replace(blob, "").replace(raw, "").strip() == readme.strip()


def test_library_works_beside_packages_of_the_same_names(python: Path, folder: Path) -> None:
    answer: dict[str, Any] = json.loads(run(python, "-c", PROGRAM, cwd=folder))
    *own, library = map(Path, answer["packages"])
    assert own == [folder / "app/__init__.py", folder / "training/__init__.py"]
    assert library.is_relative_to(python.parent.parent)
    assert -1 <= answer["similarity"] <= 1
    assert set(answer["metrics"]) == {"cosine", "js"}
    assert all(0 <= score <= 1 for scores in answer["metrics"].values() for score in scores)
    assert answer["encode"] == [2, 4, 5]
    assert answer["rank"] == ["someone is having lunch", "the sea was calm"]
    similarity, total = answer["explain"]
    assert total == pytest.approx(similarity, abs=1e-5)
    assert similarity == pytest.approx(answer["similarity"], abs=1e-5)


def test_commands_work_beside_packages_of_the_same_names(
    python: Path, folder: Path, store: Store
) -> None:
    command = python.with_name("lattemix")
    assert "tiny:fp32" in run(command, "models", "--store", store.root, cwd=folder)
    assert "centred" in run(command, "similarity", "a man", "the dog", cwd=folder)
    assert "train" in run(python.with_name("lattemix-train"), "--help", cwd=folder)


def test_client_gets_the_answers_of_the_library(
    python: Path, folder: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app_conftest, "LATTEMIX", str(python.with_name("lattemix")))
    with serving(store) as (_, url):
        remote, local = run(python, "-c", CLIENT, url, cwd=folder).splitlines()
    assert remote.split()[0] == "tiny"
    assert local.split()[0] == "AsyncClient"
    assert float(remote.split()[1]) == pytest.approx(float(local.split()[1]), abs=1e-5)


def test_py_typed_covers_the_public_names(python: Path, folder: Path) -> None:
    program = "import lattemix\nscore: float = lattemix.load().similarity('a', 'b')\n"
    (folder / "program.py").write_text(program, encoding="utf-8")
    options = ("--strict", "--python-executable", python, "--cache-dir", os.devnull)
    assert "Success" in run(sys.executable, "-m", "mypy", *options, "program.py", cwd=folder)
