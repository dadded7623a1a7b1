"""Pages whose blocks build on each other."""

import re
from pathlib import Path

import pytest

from tests.docs.conftest import ROOT, Runner, check, read_blocks


@pytest.mark.parametrize(
    ("page", "count"),
    [("docs/tutorial.md", 10), ("docs/calibration.md", 3), ("docs/deduplication.md", 4)],
)
def test_page_runs_from_first_to_last_block(
    runner: Runner, tmp_path: Path, page: str, count: int
) -> None:
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    blocks = read_blocks(page)
    assert len(blocks) >= count
    for block in blocks:
        code = re.sub(r"--steps \d+", "--steps 5", block.code)
        code = re.sub(r"--max-sentences \d+", "--max-sentences 100", code)
        code = code.replace("lattemix-train export", "lattemix-train export --precision fp32")
        check(block, runner(block._replace(code=code), tmp_path))
