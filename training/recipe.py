"""Every training setting in one typed record: the paper's choices, and ours, side by side."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lattemix.build.head import HeadModel, Normalisation
from model_store import LatteMixError, Metric
from model_store.errors import first_problem
from model_store.manifest import TokenWeighting

RECIPES = Path(__file__).parent / "recipes"
DEFAULT_RECIPE = RECIPES / "default.toml"


class Recipe(BaseModel):
    """How a head is trained. Recorded in the head, so that a result can be repeated."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    layer: int | None = Field(None, ge=0, description="Hidden layer to read; the last if unset.")
    max_tokens: int = Field(
        256, gt=2, description="Tokens read of a sentence, special tokens included."
    )
    max_sentences: int | None = Field(
        None, gt=1, description="Size of a random sample of the corpus; all if unset."
    )
    normalisation: Normalisation = Field(
        "centre-equal-norm", description="Normalisation of token vectors before the encoder."
    )
    token_weighting: TokenWeighting = Field(
        "uniform", description="Weight of each token in its sentence's mixture."
    )

    model: HeadModel = Field(
        "categorical", description="Kind of VAE; only categorical heads can be served."
    )
    latent_dims: int = Field(128, gt=0, description="L, the number of latent variables.")
    classes: int = Field(20, gt=1, description="C, the classes of each latent variable.")
    temperature: float = Field(0.3, gt=0, description="Temperature of the Gumbel-softmax.")
    inference_temperature: float | None = Field(
        None,
        gt=0,
        description="Temperature of the softmax at inference; that of training if unset.",
    )
    encoder_layers: int = Field(1, ge=1, le=3, description="Linear layers of the encoder.")
    decoder_layers: int = Field(1, ge=1, le=3, description="Linear layers of the decoder.")

    steps: int | None = Field(None, gt=0, description="Training steps; instead of epochs.")
    epochs: float | None = Field(
        None, gt=0, description="Passes over the corpus; instead of steps."
    )
    batch_sentences: int = Field(16, gt=0, description="Sentences per step, with all their tokens.")
    learning_rate: float = Field(2e-3, gt=0, description="Peak learning rate.")
    learning_rate_floor: float = Field(
        0.0, ge=0, description="Learning rate at the first and the last step."
    )
    learning_rate_schedule: Literal["linear", "constant"] = Field(
        "linear", description="Linear warm-up and decay, or constant."
    )
    warmup: float = Field(0.1, ge=0, lt=1, description="Share of the steps used for warm-up.")
    beta_schedule: Literal["linear", "cyclical", "constant"] = Field(
        "linear", description="Schedule of the KL weight from 0 to 1."
    )
    free_bits: float = Field(0.3, ge=0, description="KL per latent dim, in nats, without penalty.")
    seed: int = Field(0, ge=0, description="Same seed and sentences, same head.")

    metric: Metric = Field("centred", description="Recommended similarity metric of the head.")

    @model_validator(mode="after")
    def _has_one_length(self) -> "Recipe":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("set either steps or epochs")
        return self

    def total_steps(self, sentences: int) -> int:
        """Steps of a run over so many sentences."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return max(1, round(self.epochs * sentences / self.batch_sentences))

    @classmethod
    def load(cls, path: Path, **overrides: Any) -> "Recipe":
        """Read a TOML file; keyword arguments that are not None, the flags, take precedence."""
        try:
            settings = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise LatteMixError(f"Cannot read the recipe {path}: {error.strerror}.") from error
        except ValueError as error:  # not TOML, or not even UTF-8
            raise LatteMixError(f"The recipe {path} is not valid TOML: {error}.") from error
        given = {key: value for key, value in overrides.items() if value is not None}
        if {"steps", "epochs"} <= given.keys():
            raise LatteMixError("--steps and --epochs: give only one of them.")
        for one, other in (("steps", "epochs"), ("epochs", "steps")):
            if one in given:
                settings.pop(other, None)
        try:
            return cls.model_validate(settings | given)
        except ValidationError as error:
            raise LatteMixError(_problem(error, path, given)) from error


def _problem(error: ValidationError, path: Path, flags: Mapping[str, Any]) -> str:
    """The first wrong setting, blamed on its flag, or on the file if it has none."""
    for problem in error.errors():
        if problem["loc"] and (name := str(problem["loc"][0])) in flags:
            return f"--{name.replace('_', '-')}: {problem['msg']}, not {flags[name]}."
    return f"In the recipe {path}, {first_problem(error)}."
