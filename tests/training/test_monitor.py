import math
from pathlib import Path
from statistics import median

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.training.conftest import SMALL, batch, fit
from training.checkpoint import TrainingCheckpoint
from training.monitor import Entry, collapse, latent_figures, read_log
from training.objectives import Elbo
from training.recipe import Recipe
from training.trainer import train
from training.vae import CategoricalVAE, TokenVAE

LONG = SMALL | {"steps": 200}


def score(vae: TokenVAE) -> float:
    """A number that changes with every step."""
    return 100 * float(vae.encoder[0].weight.detach().abs().mean())


def run_log(directory: Path, **changes: object) -> list[Entry]:
    recipe = Recipe(**LONG | changes)
    train(
        Elbo(batch, 8, recipe),
        recipe,
        recipe.steps,
        TrainingCheckpoint(directory, {}, every=50),
        False,
        score,
    )
    return read_log(directory / "log.jsonl")


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> list[Entry]:
    """The log of an uninterrupted run."""
    return run_log(tmp_path_factory.mktemp("run"))


def test_logs_every_figure_every_twenty_steps_and_at_the_end(log: list[Entry]) -> None:
    assert [entry["step"] for entry in log] == [*range(0, 200, 20), 199]
    figures = {"loss", "reconstruction", "kl", "kl_per_dim", "dims_in_use", "classes_in_use"}
    for entry in log:
        assert entry.keys() - {"dev"} == figures | {"step", "beta", "tokens_per_second"}
        assert len(entry["kl_per_dim"]) == 8
        assert sum(entry["kl_per_dim"]) == pytest.approx(entry["kl"], abs=6e-3)


def test_logs_the_dev_score_in_every_tenth_and_at_the_end(tmp_path: Path) -> None:
    log = run_log(tmp_path, steps=400)
    scores = {entry["step"]: entry["dev"] for entry in log if "dev" in entry}
    assert [*scores] == [*range(0, 400, 40), 399]
    assert len(set(scores.values())) > 5


def test_logs_the_dev_score_in_every_entry_of_a_short_run(tmp_path: Path) -> None:
    log = run_log(tmp_path, steps=50)
    assert [(entry["step"], "dev" in entry) for entry in log] == [
        (0, True),
        (20, True),
        (40, True),
        (49, True),
    ]


@pytest.mark.parametrize(
    ("model", "missing"),
    [("normal", {"classes_in_use"}), ("autoencoder", {"classes_in_use", "dims_in_use"})],
)
def test_baselines_log_only_the_figures_they_have(
    tmp_path: Path, model: str, missing: set[str]
) -> None:
    log = run_log(tmp_path, model=model, steps=40)
    assert missing.isdisjoint(log[-1])
    assert "dev" in log[-1]
    assert ("kl_per_dim" in log[-1]) == (model == "normal")


def test_logs_a_nan_score_as_null(tmp_path: Path) -> None:
    recipe = Recipe(**SMALL)
    train(
        Elbo(batch, 8, recipe),
        recipe,
        20,
        TrainingCheckpoint(tmp_path, {}),
        False,
        lambda vae: math.nan,
    )
    assert '"dev": null' in (tmp_path / "log.jsonl").read_text()


def test_progress_bar_shows_the_last_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[dict[str, str]] = []
    monkeypatch.setattr(
        "training.progress.tqdm.set_postfix", lambda _, values, refresh: shown.append(values)
    )
    log = run_log(tmp_path, steps=220)
    names = ["loss", "rec", "kl", "kl/dim", "dims", "classes", "dev", "tokens/s"]
    assert all([*values] == names for values in shown)
    assert shown[-1]["kl/dim"] == f"{median(log[-1]['kl_per_dim']):.2f}"
    # Stays until there is a new score.
    assert shown[1]["dev"] == f"{log[0]['dev']:.1f}"


class KilledError(Exception):
    pass


def killed(run: TrainingCheckpoint, events: Path) -> None:
    """Run up to step 130; the last checkpoint is at 100."""

    def killing(step: int) -> torch.Tensor:
        if step == 130:
            raise KilledError
        return batch(step)

    with pytest.raises(KilledError):
        train(Elbo(killing, 8, Recipe(**LONG)), Recipe(**LONG), 200, run, False, score, events)


def test_resumed_run_logs_every_step_once(tmp_path: Path, log: list[Entry]) -> None:
    run, events = TrainingCheckpoint(tmp_path / "run", {}, every=50), tmp_path / "events"
    killed(run, events)
    with (run.directory / "log.jsonl").open("a") as file:
        file.write('{"step": 12')  # killed in the middle of a line
    train(Elbo(batch, 8, Recipe(**LONG)), Recipe(**LONG), 200, run, False, score, events)
    resumed = read_log(run.directory / "log.jsonl")
    speed = {"tokens_per_second": 0}
    assert [entry | speed for entry in resumed] == [entry | speed for entry in log]

    logged = EventAccumulator(str(events), size_guidance={"histograms": 0}).Reload()  # 0: all
    for name in ("loss", "kl", "beta", "dims_in_use", "classes_in_use", "dev"):
        expected = [(entry["step"], entry[name]) for entry in log if name in entry]
        scalars = [(event.step, event.value) for event in logged.Scalars(name)]
        assert scalars == [(step, pytest.approx(value)) for step, value in expected]
    histograms = logged.Histograms("kl_per_dim")
    assert [event.step for event in histograms] == [entry["step"] for entry in log]
    assert histograms[-1].histogram_value.num == 8


def test_collapse_is_fewer_than_half_of_the_dims_in_use() -> None:
    assert collapse({"dims_in_use": 4.0}, 8) is None
    assert collapse({}, 8) is None  # an autoencoder
    assert str(collapse({"dims_in_use": 3.0}, 8)).startswith("only 3 of 8 latent dims carry info")


def test_warns_of_collapse(capsys: pytest.CaptureFixture[str]) -> None:
    # Equal tokens leave nothing to encode.
    recipe = Recipe(**SMALL | {"free_bits": 0.0, "beta_schedule": "constant"})
    train(Elbo(lambda step: torch.zeros(16, 8), 8, recipe), recipe, 50, progress=False)
    assert "only 0 of 8 latent dims carry information" in capsys.readouterr().err
    fit(Recipe(**SMALL))
    assert capsys.readouterr().err == ""


def test_constant_dim_is_not_in_use() -> None:
    vae = CategoricalVAE(8, Recipe(**SMALL))
    code = torch.zeros(100, 8, 4)
    code[:, 0, 2] = 20  # certain, and always the same
    code[range(100), 1, torch.arange(100) % 4] = 20  # certain, and different
    figures = latent_figures(vae, code)
    assert figures["dims_in_use"] == 1
    assert figures["classes_in_use"] == pytest.approx((1 + 7 * 4) / 8, abs=0.01)
