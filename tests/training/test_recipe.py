import re
from pathlib import Path

import pytest

from lattemix.build.backbones.packages import PINNED
from lattemix.build.head import Head
from model_store import LatteMixError
from model_store.store import HEADS
from training.recipe import RECIPES, Recipe


def test_recipe_has_either_steps_or_epochs() -> None:
    assert Recipe(steps=7).total_steps(1000) == 7
    assert Recipe(epochs=0.5, batch_sentences=10).total_steps(1000) == 50
    assert Recipe(epochs=1).total_steps(2) == 1
    for changes in ({}, {"steps": 1, "epochs": 1}):
        with pytest.raises(ValueError, match="set either steps or epochs"):
            Recipe(**changes)


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.name)
def test_shipped_recipes_are_valid(path: Path) -> None:
    assert Recipe.load(path).latent_dims >= 32


@pytest.mark.parametrize(
    ("name", "recipe"),
    [
        ("default", "default.toml"),
        ("fast", "fast.toml"),
        ("glove-6b-50d", "glove-taught.toml"),
    ],
)
def test_shipped_heads_were_trained_with_the_shipped_recipes(name: str, recipe: str) -> None:
    head = Head.load(HEADS / name)
    assert Recipe(**head.spec.recipe) == Recipe.load(RECIPES / recipe)
    assert head.spec.backbone.name in PINNED
    card = (HEADS / name / "README.md").read_text()
    assert re.search("Licence of the data: .*WordNet", card)


def test_overrides_take_precedence_over_the_file() -> None:
    recipe = Recipe.load(RECIPES / "paper.toml", seed="5", steps=3, classes=None)
    assert (recipe.classes, recipe.seed, recipe.steps, recipe.epochs) == (100, 5, 3, None)


def test_paper_recipe_has_the_papers_settings() -> None:
    recipe = Recipe.load(RECIPES / "paper.toml")
    assert (recipe.latent_dims, recipe.classes, recipe.temperature) == (32, 100, 0.3)
    assert (recipe.encoder_layers, recipe.decoder_layers) == (1, 3)
    assert (recipe.epochs, recipe.batch_sentences, recipe.free_bits) == (1, 16, 0.3)
    assert recipe.learning_rate_floor / recipe.learning_rate == pytest.approx(2e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("classes = 1", "classes: Input should be greater than 1"),
        ("colour = 'red'", "colour: Extra inputs"),
        ("classes =", "is not valid TOML"),
        ("classes = 5", "toml, set either steps or epochs"),
    ],
)
def test_rejects_an_invalid_recipe(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(LatteMixError, match=message):
        Recipe.load(path)
