"""`RayRunner` on a small local cluster."""

from functools import partial
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from app.settings import Settings
from lattemix.bulk.readers import START
from lattemix.bulk.runners import LocalRunner, RayRunner
from lattemix.bulk.score import score
from lattemix.bulk.score.folder import Folder
from lattemix.bulk.score.plan import Shard, Tally, Task
from lattemix.bulk.score.worker import Worker
from model_store import Artifact, LatteMixError
from tests.tiny import SENTENCES

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows = {"a": SENTENCES * 3, "b": [*SENTENCES[3:], "", *SENTENCES[:2]] * 3}
    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table(rows), path)
    return path


def test_ray_and_this_process_compute_identical_bits(
    tmp_path: Path, settings: Settings, source: Path
) -> None:
    def run(name: str, runner: LocalRunner | RayRunner) -> pyarrow.Table:
        tally = score(
            source, tmp_path / name, ("a", "b"), (), ("cosine", "js"), "parquet", 7, lambda: runner
        )
        assert (tally.rows, tally.rejected) == (30, 3)
        return parquet.read_table(tmp_path / name)

    here, there = run("local", LocalRunner(settings)), run("ray", RayRunner(settings, workers=2))
    assert there.equals(here)


@pytest.mark.parametrize(
    ("rows", "fingerprint", "message"),
    [
        (7, "another", "has another tiny:fp32 than the task."),
        (99, None, "x.parquet changed while it was read."),
    ],
)
def test_reports_a_workers_error(
    tmp_path: Path,
    settings: Settings,
    artifact: Artifact,
    source: Path,
    rows: int,
    fingerprint: str | None,
    message: str,
) -> None:
    task = Task(
        columns=("a",),
        keep=(),
        metrics=(),
        parts="parquet",
        shard_rows=rows,
        model="tiny:fp32",
        fingerprint=fingerprint or artifact.manifest.fingerprint,
    )
    folder = Folder(tmp_path / "out")
    folder.partial.mkdir()
    shard = Shard(part="part-00001-of-00001.parquet", path=str(source), start=START, rows=rows)
    load = partial(Worker, task, folder, settings)
    with pytest.raises(LatteMixError) as raised:
        [*RayRunner(settings, workers=1).run(load, [shard], Tally)]
    assert str(raised.value).endswith(message)
    assert [*folder.partial.iterdir()] == []


def test_rejects_a_gpu_provider_without_gpus(settings: Settings) -> None:
    with pytest.raises(LatteMixError, match="LATTEMIX_PROVIDER=cuda: the Ray cluster has no GPU"):
        RayRunner(settings.model_copy(update={"provider": "cuda"}), None)
