"""Every code block of the README and two pages, run as a reader would, with its output."""

import re
from pathlib import Path

import httpx
import pytest

from app.settings import Settings
from tests.docs.conftest import ROOT, URL, Block, Runner, check, dry_run, read_blocks

README = (ROOT / "README.md").read_text(encoding="utf-8")
MAKE = [block for block in read_blocks("README.md") if block.code.startswith("make ")]
RUN = [
    block
    for block in read_blocks("README.md")
    + read_blocks("docs/service.md")
    + read_blocks("docs/clients.md")
    if block not in MAKE
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with the files that the README's commands read."""
    sentences = [f"Sentence {i} is about {word}." for i, word in enumerate(README.split()[:100])]
    (tmp_path / "sentences.txt").write_text("\n".join(sentences), encoding="utf-8")
    rows = [
        f"main\tset\tyear\t{i}\t{i % 6}.0\t{sentences[i]}\t{sentences[-i]}" for i in range(1, 20)
    ]
    pairs = [f'"{i} dogs, running","{i} cats"' for i in range(9)]
    (tmp_path / "pairs.csv").write_text("\n".join(["a,b", *pairs]), encoding="utf-8")
    (tmp_path / "sts-dev.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("block", RUN, ids=lambda block: block.code.split("\n")[0][:40])
def test_block_prints_its_output(block: Block, runner: Runner, folder: Path) -> None:
    code = block.code.replace("lattemix-train train", "lattemix-train train --steps 5")
    code = code.replace("lattemix-train export", "lattemix-train export --precision fp32")
    check(block, runner(block._replace(code=code), folder))


def test_make_commands_exist() -> None:
    assert [block.code for block in MAKE] == ["make serve", "make test"]
    assert "pytest" in dry_run("test")[-1]


def test_second_make_serve_only_serves() -> None:
    (command,) = dry_run("serve")
    assert "lattemix serve" in command


def test_readme_shows_the_main_commands() -> None:
    code = "\n".join(block.code for block in RUN)
    needed = ("curl", "/similarity", "/embed", "lattemix.load()", "lattemix similarity")
    for part in (*needed, "lattemix-train train"):
        assert part in code


def test_paraphrases_score_clearly_above_unrelated_pairs(server: str) -> None:
    program = next(block.code for block in RUN if "pairs = [" in block.code and URL in block.code)
    names: dict[str, list[list[str]]] = {}
    exec(program[: program.index("answer =")].replace("import httpx", ""), names)
    metrics = httpx.get(f"{server}/info").json()["metrics"]
    request = {"pairs": names["pairs"], "metrics": metrics}
    scores = httpx.post(f"{server}/similarity", json=request).json()["similarities"]
    for metric in metrics:
        paraphrases, unrelated = scores[:3], scores[3:]
        lowest = min(score[metric] for score in paraphrases)
        highest = max(score[metric] for score in unrelated)
        assert lowest > highest, metric
    assert min(s["cosine"] for s in scores[:3]) > 1.5 * max(s["cosine"] for s in scores[3:])


def test_word_order_score_is_the_readmes(server: str) -> None:
    pairs = [["The dog bites the man", "The man bites the dog"]]
    request = {"pairs": pairs, "metrics": ["cosine"]}
    (score,) = httpx.post(f"{server}/similarity", json=request).json()["similarities"]
    match = re.search(r"score\s+(\d\.\d+) by cosine", README)
    assert match is not None
    assert score["cosine"] == pytest.approx(float(match[1]), abs=0.006)


def test_settings_table_lists_all_settings() -> None:
    rows = re.findall(r"^\| `(LATTEMIX_\w+)` \| (.*?) \| (.*?) \|$", README, re.MULTILINE)
    expected = []
    for name, field in Settings.model_fields.items():
        default = f"`{field.default}`" if field.default not in ((), None) else "none"
        default = "the checkout's, or the user's" if name == "store" else default
        expected.append((f"LATTEMIX_{name.upper()}", default, field.description))
    assert rows == expected


def test_links_inside_the_repository_exist() -> None:
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
