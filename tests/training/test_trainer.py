import json
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from lattemix.build.backbones import TokenVectors
from lattemix.build.backbones.packages import PINNED
from lattemix.build.head import Head
from model_store import LatteMixError
from model_store.store import HEADS
from training import batches as batching
from training import corpus as corpora
from training import objective
from training.batches import Batches
from training.checkpoint import Run
from training.corpus import prepare
from training.interrupt import Interrupted
from training.monitor import latent_figures
from training.recipe import RECIPES, Recipe
from training.trainer import train
from training.vae import CategoricalVAE

TOKENS = torch.randn(2000, 8, generator=torch.Generator().manual_seed(1))

SMALL = {"latent_dims": 8, "classes": 4, "learning_rate": 1e-2, "steps": 50}


def batch(step: int) -> torch.Tensor:
    return TOKENS[torch.randint(2000, (64,), generator=torch.Generator().manual_seed(step))]


def fit(recipe: Recipe, run: Run | None = None, steps: int | None = None):
    return train(batch, 8, recipe, steps or recipe.steps, run, progress=False)


@pytest.mark.parametrize("model", ["categorical", "normal", "autoencoder"])
def test_training_lowers_the_loss(model: str) -> None:
    recipe = Recipe(**SMALL | {"model": model, "steps": 300})
    first, last = fit(recipe, steps=1)[1], fit(recipe)[1]
    assert last["reconstruction"] < 0.75 * first["reconstruction"]


def weights(vae: torch.nn.Module) -> bytes:
    return b"".join(p.detach().numpy().tobytes() for p in vae.parameters())


def test_the_same_seed_gives_the_same_weights() -> None:
    recipe = Recipe(**SMALL)
    first = weights(fit(recipe)[0])
    torch.rand(3)  # someone else's randomness
    assert weights(fit(recipe)[0]) == first
    assert weights(fit(recipe.model_copy(update={"seed": 1}))[0]) != first


class KilledError(Exception):
    pass


@pytest.mark.parametrize("interrupted_at", [1, 10, 33])
def test_interrupted_while_a_batch_is_encoded_it_saves_the_steps_before(
    tmp_path: Path, interrupted_at: int
) -> None:
    recipe, run = Recipe(**SMALL), Run(tmp_path, {})
    expected = weights(fit(recipe)[0])

    def interrupting(step: int) -> torch.Tensor:
        if step == interrupted_at:
            raise Interrupted(signal.SIGINT)
        return batch(step)

    with pytest.raises(Interrupted):
        train(interrupting, 8, recipe, 50, run, progress=False)
    steps: list[int] = []
    resumed, _ = train(lambda step: steps.append(step) or batch(step), 8, recipe, 50, run, False)
    assert steps[0] == interrupted_at
    assert weights(resumed) == expected


@pytest.mark.parametrize("killed_at", [9, 10, 33, 49])
def test_a_resumed_run_ends_as_if_it_had_not_been_interrupted(
    tmp_path: Path, killed_at: int
) -> None:
    recipe = Recipe(**SMALL)
    whole = Run(tmp_path / "whole", {}, every=10)
    expected = weights(fit(recipe, whole)[0])
    run = Run(tmp_path / "run", {}, every=10)

    def killing(step: int) -> torch.Tensor:
        if step == killed_at:
            raise KilledError
        return batch(step)

    with pytest.raises(KilledError):
        train(killing, 8, recipe, 50, run, progress=False)
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


def test_another_runs_checkpoint_is_refused_by_name_and_kept(tmp_path: Path) -> None:
    recipe = Recipe(**SMALL)
    fit(recipe, Run(tmp_path, {"corpus": "a" * 64, "classes": 4}, every=10), steps=20)
    kept = (tmp_path / "checkpoint.safetensors").read_bytes()
    other = Run(tmp_path, {"corpus": "b" * 64, "classes": 5})
    says = r"another classes \(then 4, now 5\), corpus \(then aaaaaaaaaaaa…, now bbbbbbbbbbbb…\)"
    with pytest.raises(LatteMixError, match=says):
        fit(recipe, other)
    assert (tmp_path / "checkpoint.safetensors").read_bytes() == kept


def test_a_damaged_checkpoint_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.safetensors").write_bytes(b"half")
    with pytest.raises(LatteMixError, match=r"is damaged .* begin anew with --restart"):
        fit(Recipe(**SMALL), Run(tmp_path, {}))


def test_a_run_that_diverges_stops_and_says_what_to_change(tmp_path: Path) -> None:
    recipe = Recipe(**SMALL | {"learning_rate": 1e30, "warmup": 0.0})
    with pytest.raises(LatteMixError, match=r"The loss is \S+ at step \d+: lower learning_rate"):
        fit(recipe, Run(tmp_path, {}, every=1))


def test_a_collapse_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    # Tokens that are all alike leave nothing to tell apart.
    recipe = Recipe(**SMALL | {"free_bits": 0.0, "beta_schedule": "constant"})
    train(lambda step: torch.zeros(16, 8), 8, recipe, 50, progress=False)
    assert "only 0 of 8 latent dims carry information" in capsys.readouterr().err
    fit(Recipe(**SMALL))
    assert capsys.readouterr().err == ""


def test_a_dim_that_always_says_the_same_is_not_in_use() -> None:
    vae = CategoricalVAE(8, Recipe(**SMALL))
    code = torch.zeros(100, 8, 4)
    code[:, 0, 2] = 20  # certain, and always the same
    code[range(100), 1, torch.arange(100) % 4] = 20  # certain, and different
    figures = latent_figures(vae, code)
    assert figures["dims_in_use"] == 1
    assert figures["classes_in_use"] == pytest.approx((1 + 7 * 4) / 8, abs=0.01)


def test_the_recipe_reaches_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, rates = [], []

    def watching(tokens, reconstruction, kl, beta, free_bits):
        seen.append((len(tokens), beta, free_bits))
        return objective.negative_elbo(tokens, reconstruction, kl, beta, free_bits)

    step = torch.optim.Adam.step

    def stepping(adam, *arguments):
        rates.append(adam.param_groups[0]["lr"])
        return step(adam, *arguments)

    monkeypatch.setattr("training.trainer.negative_elbo", watching)
    monkeypatch.setattr(torch.optim.Adam, "step", stepping)
    changes = {"steps": 5, "temperature": 0.7, "free_bits": 0.2, "warmup": 0.4}
    vae, _ = fit(Recipe(**SMALL | changes))
    assert seen == [(64, beta, 0.2) for beta in (0, 0.25, 0.5, 0.75, 1)]
    assert rates == pytest.approx([0.005, 0.01, 0.01, 0.01 * 2 / 3, 0.01 / 3])
    assert vae.temperature == 0.7


def test_a_batch_without_tokens_is_passed_over() -> None:
    empty = torch.zeros(0, 8)
    vae, _ = train(
        lambda step: batch(step) if step % 2 else empty, 8, Recipe(**SMALL), 10, progress=False
    )
    assert all(torch.isfinite(p).all() for p in vae.parameters())


@pytest.fixture
def hundred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> corpora.Corpus:
    """A hundred numbers, in shards of thirty."""
    for module in (corpora, batching):
        monkeypatch.setattr(module, "SHARD_SENTENCES", 30)
    return prepare(map(str, range(100)), tmp_path)


def fake(corpus: corpora.Corpus):
    """Each sentence, a number, as one token that is that number."""

    def encode(index: int) -> TokenVectors:
        numbers = np.array([[float(s)] for s in corpus.shard(index)], np.float32)
        ones = np.ones(len(numbers), np.int32)
        return TokenVectors(numbers, ones, ones)

    return encode


def test_an_epoch_reads_every_sentence_once_in_an_order_of_its_own(
    hundred: corpora.Corpus,
) -> None:
    steps = 3 * 4 + 2  # of 8 sentences: four from each of three shards, two from the last
    epochs = {}
    for seed in (0, 1):
        batches = Batches(hundred, fake(hundred), 8, seed)
        assert sorted(batches.shards(steps)) == [0, 1, 2, 3]
        for epoch in (0, 1):
            read = [batches(epoch * steps + step).vectors[:, 0] for step in range(steps)]
            assert sorted(np.concatenate(read)) == list(range(100))
            epochs[seed, epoch] = np.concatenate(read).tolist()
    assert len({tuple(order) for order in epochs.values()}) == 4
    # No step depends on the ones before it.
    again = Batches(hundred, fake(hundred), 8, seed=1)
    late = again(steps + 5).vectors[:, 0]
    np.testing.assert_array_equal(late, batches(steps + 5).vectors[:, 0])


def test_a_short_run_reads_only_the_shards_it_needs(hundred: corpora.Corpus) -> None:
    asked = []
    encode = fake(hundred)
    batches = Batches(hundred, lambda i: asked.append(i) or encode(i), 10, seed=2)
    for step in range(4):  # one of the short shard, three of another
        batches(step)
    assert asked == batches.shards(4)
    assert len(asked) == 2


def test_a_recipe_has_one_length() -> None:
    assert Recipe(steps=7).total_steps(1000) == 7
    assert Recipe(epochs=0.5, batch_sentences=10).total_steps(1000) == 50
    assert Recipe(epochs=1).total_steps(2) == 1
    for changes in ({}, {"steps": 1, "epochs": 1}):
        with pytest.raises(ValueError, match="set either steps or epochs"):
            Recipe(**changes)


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.name)
def test_the_shipped_recipes_are_readable(path: Path) -> None:
    assert Recipe.load(path).latent_dims >= 32


@pytest.mark.parametrize(
    ("name", "recipe"), [("default", "default.toml"), ("glove-6b-50d", "glove.toml")]
)
def test_the_shipped_heads_are_whole_and_made_by_the_shipped_recipes(
    name: str, recipe: str
) -> None:
    head = Head.load(HEADS / name)
    assert head.spec.recipe == Recipe.load(RECIPES / recipe).model_dump(mode="json")
    assert head.spec.backbone.name in PINNED
    assert "Licence of the data: WordNet" in (HEADS / name / "README.md").read_text()


def test_what_is_given_wins_over_the_file() -> None:
    recipe = Recipe.load(RECIPES / "paper.toml", seed=5, steps=3, classes=None)
    assert (recipe.classes, recipe.seed, recipe.steps, recipe.epochs) == (100, 5, 3, None)


def test_the_papers_recipe_is_the_papers() -> None:
    recipe = Recipe.load(RECIPES / "paper.toml")
    assert (recipe.latent_dims, recipe.classes, recipe.temperature) == (32, 100, 0.3)
    assert (recipe.encoder_layers, recipe.decoder_layers) == (1, 3)
    assert (recipe.epochs, recipe.batch_sentences, recipe.free_bits) == (1, 16, 0.3)
    assert recipe.learning_rate_floor / recipe.learning_rate == pytest.approx(2e-5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("classes = 1", "classes: Input should be greater than 1"),
        ("colour = 'red'", "colour: Extra inputs"),
        ("classes =", "is not valid TOML"),
        ("classes = 5", "toml, set either steps or epochs"),
    ],
)
def test_a_wrong_recipe_is_explained(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(LatteMixError, match=says):
        Recipe.load(path)
