"""Code blocks of the documentation, run against the default model."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from lattemix.directories import cache_root
from model_store.store import DEFAULT_MODELS, default_root

ROOT = Path(__file__).parents[2]
URL = "http://127.0.0.1:8000"  # of the server in the documents


class Block(NamedTuple):
    """A command or program, and the output printed under it, if any."""

    language: str
    code: str
    output_language: str
    output: str


Runner = Callable[[Block, Path], str]


def read_blocks(document: str) -> list[Block]:
    text = (ROOT / document).read_text(encoding="utf-8")
    fences = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    blocks = []
    for (language, code), following in pairwise([*fences, ("", "")]):
        if language in ("bash", "python"):
            output = following if following[0] in ("json", "text") else ("", "")
            blocks.append(Block(language, code.strip(), *output))
    return blocks


def check(block: Block, output: str) -> None:
    """Compare the output of a block with the documented one; numbers may differ by rounding."""
    if not block.output:
        return
    expected = block.output
    if block.output_language == "json":
        output, expected = (json.dumps(json.loads(text)) for text in (output, expected))
    number = r"-?\d+\.\d+"
    words, expected_words = (re.sub(number, "#", text).split() for text in (output, expected))
    assert words == expected_words
    values, expected_values = (
        [float(value) for value in re.findall(number, text)] for text in (output, expected)
    )
    assert values == pytest.approx(expected_values, abs=0.006)


def slugs(text: str) -> list[str]:
    """The anchors of a page's headings, as the code host makes them."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    slugs: list[str] = []
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        plain = re.sub(r"\[(.*?)\]\(.*?\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")
        count = sum(
            re.fullmatch(rf"{re.escape(slug)}(-\d+)?", other) is not None for other in slugs
        )
        slugs.append(f"{slug}-{count}" if count else slug)
    return slugs


def shell_environment() -> dict[str, str]:
    """The environment without the variables of `make test`, which may run this."""
    inherited = ("MAKE", "MFLAGS", "LATTEMIX_", "COV_")
    return {name: value for name, value in os.environ.items() if not name.startswith(inherited)}


def dry_run(target: str) -> list[str]:
    """The commands that make would run."""
    command = ["make", "--dry-run", target]
    outcome = subprocess.run(
        command, cwd=ROOT, env=shell_environment(), capture_output=True, text=True, check=True
    )
    return outcome.stdout.splitlines()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """URL of a running `make serve`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["make", "serve", f"PORT={port}"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=shell_environment(), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        log = ""
        for line in process.stderr:
            log += line
            if f":{port}/similarity" in line:
                break
        else:
            pytest.fail(f"make serve ended: {log}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the shipped models, to which models can be added."""
    store = tmp_path_factory.mktemp("store")
    for name in DEFAULT_MODELS:
        (store / name).symlink_to(default_root() / name)
    return store


@pytest.fixture
def runner(
    store: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Runner:
    """Runs a block in a directory and returns its output."""
    cache = tmp_path_factory.mktemp("cache")
    if (backbones := cache_root() / "backbones").is_dir():  # no second download of the backbone
        (cache / "backbones").symlink_to(backbones)
    environment = shell_environment() | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LATTEMIX_STORE": str(store),
        "LATTEMIX_CACHE": str(cache),
    }

    def run(block: Block, directory: Path) -> str:
        code = block.code
        if URL in code:
            code = code.replace(URL, request.getfixturevalue("server"))
        shells = {"python": [sys.executable, "-c"], "bash": ["bash", "-euo", "pipefail", "-c"]}
        command = [*shells[block.language], code]
        outcome = subprocess.run(
            command, cwd=directory, env=environment, capture_output=True, text=True, check=False
        )
        assert outcome.returncode == 0, outcome.stderr
        return outcome.stdout

    return run
