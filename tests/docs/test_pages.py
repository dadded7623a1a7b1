"""Every code block of the README and the guides, run as a reader would, with its output."""

import re
from pathlib import Path

import httpx
import pytest

from app.settings import Settings
from tests.docs.conftest import ROOT, URL, Block, Runner, check, read_blocks

INDEPENDENT = (
    "README.md",
    *(f"docs/{name}.md" for name in ("api", "clients", "library", "models")),
)
# Blocks that build on each other, in one directory; and how many there are at least.
SEQUENTIAL = {"docs/get-started.md": 10, "docs/calibration.md": 3, "docs/deduplication.md": 4}
# Need a database, or data that is not in the repository.
NOT_RUN = {
    "docs/vectors.md",
    "docs/training.md",
    "docs/evaluation.md",
    "docs/export.md",
    "docs/operations.md",
    "docs/deployment.md",
}
BLOCKS = [
    block
    for page in INDEPENDENT
    for block in read_blocks(page)
    if not block.code.startswith("make ")
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A directory with the files that the commands read."""
    words = (ROOT / "LICENSE").read_text(encoding="utf-8").split()
    sentences = [f"Sentence {i} is about {word}." for i, word in enumerate(words[:100])]
    (tmp_path / "sentences.txt").write_text("\n".join(sentences), encoding="utf-8")
    rows = [
        f"main\tset\tyear\t{i}\t{i % 6}.0\t{sentences[i]}\t{sentences[-i]}" for i in range(1, 20)
    ]
    pairs = [f'"{i} dogs, running","{i} cats"' for i in range(9)]
    (tmp_path / "pairs.csv").write_text("\n".join(["a,b", *pairs]), encoding="utf-8")
    (tmp_path / "sts-dev.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.code.split("\n")[0][:40])
def test_block_prints_its_output(block: Block, runner: Runner, folder: Path) -> None:
    check(block, runner(shortened(block), folder))


@pytest.mark.parametrize("page", SEQUENTIAL)
def test_page_runs_from_first_to_last_block(runner: Runner, tmp_path: Path, page: str) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    blocks = read_blocks(page)
    assert len(blocks) >= SEQUENTIAL[page]
    for block in blocks:
        check(block, runner(shortened(block), tmp_path))


def shortened(block: Block) -> Block:
    """The block with less training."""
    code = re.sub(r" --steps \d+", "", block.code)
    code = re.sub(r"--max-sentences \d+", "--max-sentences 100", code)
    code = code.replace("lattemix-train train", "lattemix-train train --steps 5")
    if "--precision" not in code:
        code = code.replace("lattemix-train export", "lattemix-train export --precision fp32")
    return block._replace(code=code)


def test_every_page_with_blocks_is_run() -> None:
    pages = {f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")}
    others = {page for page in pages if read_blocks(page)} - {*INDEPENDENT, *SEQUENTIAL}
    assert others <= NOT_RUN


def test_paraphrases_score_clearly_above_unrelated_pairs(server: str) -> None:
    program = next(block.code for block in BLOCKS if "marathon" in block.code and URL in block.code)
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


def test_word_order_score_is_the_documented_one(server: str) -> None:
    page = (ROOT / "docs/models.md").read_text(encoding="utf-8")
    match = re.search(r"\*(.+?)\* and \*(.+?)\*\s+score\s+(\d\.\d+)\s+by\s+cosine", page)
    assert match is not None
    request = {"pairs": [[match[1], match[2]]], "metrics": ["cosine"]}
    (score,) = httpx.post(f"{server}/similarity", json=request).json()["similarities"]
    assert score["cosine"] == pytest.approx(float(match[3]), abs=0.006)


def test_settings_table_lists_all_settings() -> None:
    page = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(LATTEMIX_\w+)` \| (.*?) \| (.*?) \|$", page, re.MULTILINE)
    expected = []
    for name, field in Settings.model_fields.items():
        default = f"`{field.default}`" if field.default not in ((), None) else "none"
        default = "the checkout's, or the user's" if name == "store" else default
        expected.append((f"LATTEMIX_{name.upper()}", default, field.description))
    assert rows[: len(expected)] == expected
