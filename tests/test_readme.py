"""Every code block of the README, run as a reader would run it, with the answer it promises."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from app.settings import Settings
from model_store.store import default_root

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
SERVICE = (ROOT / "docs/service.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
PROMISED = "http://127.0.0.1:8000"


class Block(NamedTuple):
    """A command or program, and the output printed under it, if any."""

    language: str
    code: str
    output_language: str
    output: str


def blocks(text: str) -> list[Block]:
    fences = re.findall(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    found = []
    for i, (language, code) in enumerate(fences):
        if language in ("bash", "python"):
            following = fences[i + 1] if i + 1 < len(fences) else ("", "")
            output = following if following[0] in ("json", "text") else ("", "")
            found.append(Block(language, code.strip(), *output))
    return found


MAKE = [block for block in blocks(README) if block.code.startswith("make ")]
RUN = [block for block in blocks(README) + blocks(SERVICE) if block not in MAKE]


def outside_make() -> dict[str, str]:
    """The environment of a shell: this may be running inside `make test`, with its variables."""
    inherited = ("MAKE", "MFLAGS", "LATTEMIX_")
    return {name: value for name, value in os.environ.items() if not name.startswith(inherited)}


def dry_run(target: str) -> list[str]:
    """The commands make would run."""
    command = ["make", "--dry-run", target]
    outcome = subprocess.run(
        command, cwd=ROOT, env=outside_make(), capture_output=True, text=True, check=True
    )
    return outcome.stdout.splitlines()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of our own that sees the default model, for what the README trains."""
    store = tmp_path_factory.mktemp("store")
    (store / "default").symlink_to(default_root() / "default")
    return store


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """What `make serve` starts, on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["make", "serve", f"PORT={port}"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=outside_make(), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        said = ""
        for line in process.stderr:
            said += line
            if "Three things to try" in line:
                break
        else:
            pytest.fail(f"make serve ended: {said}")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the files the README's commands speak of."""
    sentences = [f"Sentence {i} is about {word}." for i, word in enumerate(README.split())]
    (tmp_path / "sentences.txt").write_text("\n".join(sentences[:300]), encoding="utf-8")
    rows = [
        f"main\tset\tyear\t{i}\t{i % 6}.0\t{sentences[i]}\t{sentences[-i]}" for i in range(1, 20)
    ]
    pairs = [f'"{i} dogs, running","{i} cats"' for i in range(9)]
    (tmp_path / "pairs.csv").write_text("\n".join(["a,b", *pairs]), encoding="utf-8")
    (tmp_path / "sts-dev.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path


def run(block: Block, server: str, store: Path, place: Path) -> str:
    code = block.code.replace(PROMISED, server)
    if block.language == "python":
        command = [sys.executable, "-c", code]
    else:
        command = ["bash", "-euo", "pipefail", "-c", code]
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = os.environ | {
        "PATH": programs,
        "LATTEMIX_STORE": str(store),
        "LATTEMIX_CACHE": str(store / "cache"),
    }
    outcome = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


def numbers_apart(text: str) -> tuple[str, list[float]]:
    """Split a text into what must be the same and the numbers that may differ by rounding."""
    pattern = r"-?\d+\.\d+"
    words = " ".join(re.sub(pattern, "#", text).split())
    return words, [float(number) for number in re.findall(pattern, text)]


@pytest.mark.parametrize("block", RUN, ids=lambda block: block.code.split("\n")[0][:40])
def test_a_block_does_what_it_says(block: Block, server: str, store: Path, place: Path) -> None:
    few_steps = block.code.replace("lattemix-train train", "lattemix-train train --steps 20")
    check(block, run(block._replace(code=few_steps), server, store, place))


def test_the_tutorial_from_its_first_block_to_its_last(
    server: str, store: Path, tmp_path: Path
) -> None:
    done = blocks(TUTORIAL)
    for block in done:
        check(block, run(block, server, store, tmp_path))
    assert len(done) > 10


def check(block: Block, output: str) -> None:
    if block.output_language == "json":
        found, promised = json.dumps(json.loads(output)), json.dumps(json.loads(block.output))
    else:
        found, promised = output, block.output
    if block.output:
        words, values = numbers_apart(found)
        promised_words, promised_values = numbers_apart(promised)
        assert words == promised_words
        assert values == pytest.approx(promised_values, abs=0.006)


def test_the_make_commands_are_there_and_real() -> None:
    assert [block.code for block in MAKE] == ["make serve", "make test"]
    # `make test` is what runs this; `make serve` is what the blocks above talk to.
    assert dry_run("test")[-1].endswith('pytest -m "not browser" --cov')


def test_the_readme_has_the_blocks_a_newcomer_needs() -> None:
    code = "\n".join(block.code for block in RUN)
    for needed in ("curl", "/similarity", "/embed", "lattemix similarity", "lattemix-train train"):
        assert needed in code


def test_paraphrases_score_clearly_above_unrelated_pairs(server: str) -> None:
    program = next(block.code for block in RUN if "pairs = [" in block.code)
    names: dict[str, list[list[str]]] = {}
    exec(program[: program.index("answer =")].replace("import httpx", ""), names)
    metrics = httpx.get(f"{server}/info").json()["metrics"]
    request = {"pairs": names["pairs"], "metrics": metrics}
    scores = httpx.post(f"{server}/similarity", json=request).json()["similarities"]
    for metric in metrics:
        paraphrases, unrelated = scores[:3], scores[3:]
        worst = min(score[metric] for score in paraphrases)
        best = max(score[metric] for score in unrelated)
        assert worst > best, metric
    assert min(s["cosine"] for s in scores[:3]) > 1.5 * max(s["cosine"] for s in scores[3:])


def test_word_order_weighs_as_little_as_the_readme_says(server: str) -> None:
    request = {"pairs": [["The dog bites the man", "The man bites the dog"]]}
    (score,) = httpx.post(f"{server}/similarity", json=request).json()["similarities"]
    said = re.search(r"score\s+(\d\.\d+) by cosine", README)
    assert said is not None
    assert score["cosine"] == pytest.approx(float(said[1]), abs=0.006)


def test_the_table_of_settings_is_the_settings() -> None:
    rows = re.findall(r"^\| `(LATTEMIX_\w+)` \| (.*?) \| (.*?) \|$", README, re.MULTILINE)
    expected = []
    for name, field in Settings.model_fields.items():
        default = f"`{field.default}`" if field.default not in ((), None) else "none"
        default = "the checkout's, or the user's" if name == "store" else default
        expected.append((f"LATTEMIX_{name.upper()}", default, field.description))
    assert rows == expected


def test_a_second_start_installs_and_builds_nothing(server: str) -> None:
    (command,) = dry_run("serve")
    assert "lattemix serve" in command


def test_links_inside_the_repository_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
