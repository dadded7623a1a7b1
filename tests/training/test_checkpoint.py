import json
import signal
from pathlib import Path

import pytest
import torch

from model_store import LatteMixError
from tests.training.conftest import SMALL, batch, fit, weights
from training.checkpoint import TrainingCheckpoint
from training.interrupt import Interrupted
from training.objectives import Elbo
from training.recipe import Recipe
from training.trainer import train


class KilledError(Exception):
    pass


@pytest.mark.parametrize("interrupted_at", [1, 10, 33])
def test_interrupt_during_encoding_saves_the_finished_steps(
    tmp_path: Path, interrupted_at: int
) -> None:
    recipe, run = Recipe(**SMALL), TrainingCheckpoint(tmp_path, {})
    expected = weights(fit(recipe)[0])

    def interrupting(step: int) -> torch.Tensor:
        if step == interrupted_at:
            raise Interrupted(signal.SIGINT)
        return batch(step)

    with pytest.raises(Interrupted):
        train(Elbo(interrupting, 8, recipe), recipe, 50, run, progress=False)
    steps: list[int] = []
    resumed, _ = train(
        Elbo(lambda step: steps.append(step) or batch(step), 8, recipe), recipe, 50, run, False
    )
    assert steps[0] == interrupted_at
    assert weights(resumed) == expected


@pytest.mark.parametrize("killed_at", [9, 10, 33, 49])
def test_killed_run_resumes_to_the_same_weights_and_log(tmp_path: Path, killed_at: int) -> None:
    recipe = Recipe(**SMALL)
    whole = TrainingCheckpoint(tmp_path / "whole", {}, every=10)
    expected = weights(fit(recipe, whole)[0])
    run = TrainingCheckpoint(tmp_path / "run", {}, every=10)

    def killing(step: int) -> torch.Tensor:
        if step == killed_at:
            raise KilledError
        return batch(step)

    with pytest.raises(KilledError):
        train(Elbo(killing, 8, recipe), recipe, 50, run, progress=False)
    assert run.path.exists() == (killed_at >= 10)
    resumed, figures = fit(recipe, run)
    assert weights(resumed) == expected
    # Killed once more, after the last step: the figures of the run must not be lost.
    again, last = fit(recipe, run)
    assert (weights(again), last) == (expected, figures)

    def logged(directory: Path) -> list[dict[str, float]]:
        lines = (directory / "log.jsonl").read_text().splitlines()
        return [json.loads(line) | {"tokens_per_second": 0} for line in lines]

    assert logged(tmp_path / "run") == logged(tmp_path / "whole")
    assert [entry["step"] for entry in logged(tmp_path / "run")] == [0, 20, 40, 49]


def test_rejects_and_keeps_the_checkpoint_of_another_run(tmp_path: Path) -> None:
    recipe = Recipe(**SMALL)
    fit(
        recipe, TrainingCheckpoint(tmp_path, {"corpus": "a" * 64, "classes": 4}, every=10), steps=20
    )
    kept = (tmp_path / "checkpoint.safetensors").read_bytes()
    other = TrainingCheckpoint(tmp_path, {"corpus": "b" * 64, "classes": 5})
    message = (
        r"settings: classes \(then 4, now 5\), corpus \(then aaaaaaaaaaaa…, now bbbbbbbbbbbb…\)\."
    )
    with pytest.raises(LatteMixError, match=message):
        fit(recipe, other)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == kept


def test_rejects_a_damaged_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(b"half")
    with pytest.raises(LatteMixError, match=r"is damaged .* start over with --restart"):
        fit(Recipe(**SMALL), TrainingCheckpoint(tmp_path, {}))
