"""Every training setting in one typed record: the paper's choices, and ours, side by side."""

import tomllib
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from model_store import LatteMixError, Metric
from model_store.errors import first_problem

Normalisation = Literal["none", "centre", "centre-equal-norm"]

RECIPES = Path(__file__).parent / "recipes"


class Recipe(BaseModel):
    """How a head is trained. Recorded in the head, so that a result can be repeated."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layer: int | None = Field(None, ge=0, description="Hidden layer to read; the last if unset.")
    max_tokens: int = Field(256, gt=2, description="Longest sentence, special tokens included.")
    normalisation: Normalisation = Field(
        "centre-equal-norm", description="What happens to a token's vector before the encoder."
    )

    latent_dims: int = Field(128, gt=0, description="L.")
    classes: int = Field(20, gt=1, description="C.")
    temperature: float = Field(0.3, gt=0, description="Of the Gumbel-softmax and of inference.")
    encoder_layers: int = Field(1, ge=1, le=3)
    decoder_layers: int = Field(1, ge=1, le=3)

    steps: int = Field(600, gt=0)
    batch_tokens: int = Field(128, gt=0, description="Tokens per step.")
    learning_rate: float = Field(2e-3, gt=0, description="The peak of a linear rise and fall.")
    warmup: float = Field(0.1, ge=0, lt=1, description="Share of the steps spent rising.")
    free_bits: float = Field(0.3, ge=0, description="KL per latent dim that is not punished.")
    max_sentences: int = Field(20_000, gt=0, description="Sentences encoded, drawn by the seed.")
    seed: int = 0

    metric: Metric = Field("centred", description="What to recommend to users of this head.")

    @classmethod
    def load(cls, path: Path, **overrides: Any) -> "Recipe":
        """Read a TOML file; keyword arguments that are not None win over what it says."""
        try:
            settings = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise LatteMixError(f"Cannot read the recipe {path}: {error.strerror}.") from error
        except ValueError as error:  # not TOML, or not even UTF-8
            raise LatteMixError(f"The recipe {path} is not valid TOML: {error}.") from error
        settings |= {key: value for key, value in overrides.items() if value is not None}
        try:
            return cls.model_validate(settings)
        except ValidationError as error:
            raise LatteMixError(f"In the recipe {path}, {first_problem(error)}.") from error
