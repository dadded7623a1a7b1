"""The same on Ray: workers of a real, small cluster."""

from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from app.settings import Settings
from lattemix.bulk.readers import START
from lattemix.bulk.score import Local, OnRay, score
from lattemix.bulk.score.folder import Folder
from lattemix.bulk.score.plan import Shard, Task, digest
from model_store import Artifact, LatteMixError
from tests.conftest import SENTENCES

pytestmark = pytest.mark.usefixtures("ray_cluster")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    rows = {"a": SENTENCES * 3, "b": [*SENTENCES[3:], "", *SENTENCES[:2]] * 3}
    path = tmp_path / "x.parquet"
    parquet.write_table(pyarrow.table(rows), path)
    return path


def test_ray_gives_the_numbers_of_this_process(
    tmp_path: Path, settings: Settings, source: Path
) -> None:
    def run(name: str, engine: Local | OnRay) -> pyarrow.Table:
        tally = score(
            source, tmp_path / name, ("a", "b"), (), ("cosine", "js"), "parquet", 7, lambda: engine
        )
        assert (tally.rows, tally.refused) == (30, 3)
        return parquet.read_table(tmp_path / name)

    here, there = run("local", Local(settings)), run("ray", OnRay(settings, workers=2))
    assert there.equals(here), "to the last bit"


@pytest.mark.parametrize(
    ("rows", "model_digest", "says"),
    [
        (7, "another", "holds another tiny:fp32 here than where the work began."),
        (99, None, "x.parquet was changed while it was being read."),
    ],
)
def test_a_workers_failure_is_said_in_its_own_words(
    tmp_path: Path,
    settings: Settings,
    artifact: Artifact,
    source: Path,
    rows: int,
    model_digest: str | None,
    says: str,
) -> None:
    task = Task(
        columns=("a",),
        keep=(),
        metrics=(),
        parts="parquet",
        shard_rows=rows,
        model="tiny:fp32",
        model_digest=model_digest or digest(artifact.manifest),
    )
    folder = Folder(tmp_path / "out")
    folder.partial.mkdir()
    shard = Shard(part="part-00001-of-00001.parquet", path=str(source), start=START, rows=rows)
    with pytest.raises(LatteMixError) as raised:
        [*OnRay(settings, workers=1).run(task, folder, [shard])]
    assert str(raised.value).endswith(says)
    assert [*folder.partial.iterdir()] == []


def test_a_gpu_that_the_cluster_lacks_is_said_to_be(settings: Settings) -> None:
    with pytest.raises(LatteMixError, match="LATTEMIX_PROVIDER=cuda: the Ray cluster has no GPU"):
        OnRay(settings.model_copy(update={"provider": "cuda"}), None)
