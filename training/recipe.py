"""Every training setting in one typed record: the paper's choices, and ours, side by side."""

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from model_store import LatteMixError, Metric
from model_store.errors import first_problem
from model_store.manifest import TokenWeighting

Normalisation = Literal["none", "centre", "centre-equal-norm"]
Model = Literal["categorical", "normal", "autoencoder"]

RECIPES = Path(__file__).parent / "recipes"


class Recipe(BaseModel):
    """How a head is trained. Recorded in the head, so that a result can be repeated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layer: int | None = Field(None, ge=0, description="Hidden layer to read; the last if unset.")
    max_tokens: int = Field(256, gt=2, description="Longest sentence, special tokens included.")
    max_sentences: int | None = Field(
        None, gt=1, description="Keep only so many, a random sample; all if unset."
    )
    normalisation: Normalisation = Field(
        "centre-equal-norm", description="What happens to a token's vector before the encoder."
    )
    token_weighting: TokenWeighting = Field(
        "uniform", description="How much each token counts in a sentence's mixture."
    )

    model: Model = Field("categorical", description="Only categorical heads can be served.")
    latent_dims: int = Field(128, gt=0, description="L, the number of latent variables.")
    classes: int = Field(20, gt=1, description="C, the classes of each latent variable.")
    temperature: float = Field(0.3, gt=0, description="Of the Gumbel-softmax.")
    inference_temperature: float | None = Field(
        None, gt=0, description="Of the softmax at inference; the same if unset."
    )
    encoder_layers: int = Field(1, ge=1, le=3, description="Linear layers of the encoder.")
    decoder_layers: int = Field(1, ge=1, le=3, description="Linear layers of the decoder.")

    steps: int | None = Field(None, gt=0, description="Length of the training; or set epochs.")
    epochs: float | None = Field(None, gt=0, description="Passes over the corpus; or set steps.")
    batch_sentences: int = Field(16, gt=0, description="Sentences per step, with all their tokens.")
    learning_rate: float = Field(2e-3, gt=0, description="Its highest value.")
    learning_rate_floor: float = Field(0.0, ge=0, description="Its value at either end.")
    learning_rate_schedule: Literal["linear", "constant"] = Field(
        "linear", description="A rise and a fall, or none."
    )
    warmup: float = Field(0.1, ge=0, lt=1, description="Share of the steps spent rising.")
    beta_schedule: Literal["linear", "cyclical", "constant"] = Field(
        "linear", description="How the weight of the KL term comes to 1."
    )
    free_bits: float = Field(0.3, ge=0, description="KL per latent dim, in nats, not punished.")
    seed: int = Field(0, ge=0, description="Same seed and sentences, same head.")

    metric: Metric = Field("centred", description="What to recommend to users of this head.")

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
        """Read a TOML file; keyword arguments that are not None win over what it says."""
        try:
            settings = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise LatteMixError(f"Cannot read the recipe {path}: {error.strerror}.") from error
        except ValueError as error:  # not TOML, or not even UTF-8
            raise LatteMixError(f"The recipe {path} is not valid TOML: {error}.") from error
        given = {key: value for key, value in overrides.items() if value is not None}
        for one, other in (("steps", "epochs"), ("epochs", "steps")):
            if one in given:
                settings.pop(other, None)
        try:
            return cls.model_validate(settings | given)
        except ValidationError as error:
            raise LatteMixError(f"In the recipe {path}, {first_problem(error)}.") from error
