"""`dedup_files` on a small Ray cluster."""

from pathlib import Path

import pytest

from lattemix.bulk.runners import RayRunner
from lattemix.settings import ModelSettings
from tests.lattemix.bulk.dedup.conftest import (
    Run,
    files_below,
    random_texts,
    variant,
    write_lines,
)

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_ray_and_this_process_write_the_same_bytes(
    tmp_path: Path, run: Run, model_settings: ModelSettings
) -> None:
    texts = random_texts(9000)  # more than a shard
    texts += [variant(text) for text in texts[::9]] + [variant(texts[0], n) for n in range(40)]
    source = write_lines(tmp_path / "x.txt", [*texts, "!?"])
    here = run(source, tmp_path / "here", threshold=0.95)
    runner = RayRunner(model_settings, workers=2)
    there = run(source, tmp_path / "there", threshold=0.95, runner=runner)
    assert files_below(tmp_path / "there") == files_below(tmp_path / "here")
    assert there == here
    assert len([*(tmp_path / "there.work").glob("vectors-*.npy")]) == 2
    assert len([*(tmp_path / "there.work").glob("round-*")]) > 1
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "there.work").rglob("*.np*")}
    run(source, tmp_path / "again", work=tmp_path / "there.work", threshold=0.95, runner=runner)
    assert {path: path.stat().st_mtime_ns for path in before} == before
