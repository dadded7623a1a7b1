"""docs/tutorial.md, whose blocks build on each other."""

import re
from pathlib import Path

from tests.docs.conftest import Runner, check, read_blocks


def test_tutorial_runs_from_first_to_last_block(runner: Runner, tmp_path: Path) -> None:
    blocks = read_blocks("docs/tutorial.md")
    assert len(blocks) > 10
    for block in blocks:
        code = re.sub(r"--steps \d+", "--steps 5", block.code)
        code = re.sub(r"--max-sentences \d+", "--max-sentences 100", code)
        code = code.replace("lattemix-train export", "lattemix-train export --precision fp32")
        check(block, runner(block._replace(code=code), tmp_path))
