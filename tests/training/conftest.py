"""The tiny corpus encoded, `lattemix-train` in this process, and a VAE on random vectors."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lattemix.build.backbones import Checkpoint
from tests.tiny import RECIPE, SENTENCES
from training import cli
from training.backbones import load
from training.cache import VectorCache
from training.checkpoint import TrainingCheckpoint
from training.corpus import Corpus, prepare
from training.encoding import EncodedCorpus
from training.objectives import Elbo
from training.recipe import Recipe
from training.trainer import train

torch.set_num_threads(1)  # a second thread only costs time with models this small

Run = Callable[..., object]

TOKENS = torch.randn(2000, 8, generator=torch.Generator().manual_seed(1))
SMALL = {"latent_dims": 8, "classes": 4, "learning_rate": 1e-2, "steps": 50}


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    return RECIPE


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    return prepare(SENTENCES, tmp_path_factory.mktemp("prepared"))


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> VectorCache:
    return VectorCache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def encoded(
    checkpoint: Checkpoint, prepared: Corpus, cache: VectorCache, recipe: Recipe
) -> EncodedCorpus:
    return EncodedCorpus(load(checkpoint, recipe.max_tokens), prepared, cache)


def settings(**values: object) -> list[str]:
    """Options that override settings of the recipe."""
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `lattemix-train`; return its exit code, or the message it ends with."""

    def run(*arguments: object) -> object:
        monkeypatch.setattr(sys, "argv", ["lattemix-train", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return stopped.value.code

    return run


@pytest.fixture
def _no_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than the rest of a tiny job."""
    monkeypatch.setattr("training.report.run_plots", lambda *_: [])


@pytest.fixture
def arguments(backbone: Path, corpus: Path, tmp_path: Path, _no_plots: None) -> list[str]:
    """Arguments of a tiny job, except --steps and --out."""
    common = ["train", "--corpus", corpus, "--backbone", backbone, "--cache", tmp_path / "cache"]
    tiny = settings(latent_dims=4, classes=5, max_tokens=16, batch_sentences=2)
    return [*map(str, common), *tiny]


@pytest.fixture
def dev(tmp_path: Path) -> Path:
    rows = [f"\t\t\t\t{i % 4}\t{s}\t{SENTENCES[i - 3]}" for i, s in enumerate(SENTENCES)]
    path = tmp_path / "sts-dev.csv"
    path.write_text("\n".join(rows))
    return path


def batch(step: int) -> torch.Tensor:
    """Random token vectors [64, 8], determined by the step."""
    return TOKENS[torch.randint(2000, (64,), generator=torch.Generator().manual_seed(step))]


def fit(recipe: Recipe, run: TrainingCheckpoint | None = None, steps: int | None = None):
    """Train a VAE on `batch`; return it and its figures."""
    return train(Elbo(batch, 8, recipe), recipe, steps or recipe.steps, run, progress=False)


def weights(vae: torch.nn.Module) -> bytes:
    """All parameters as bytes."""
    return b"".join(p.detach().numpy().tobytes() for p in vae.parameters())
