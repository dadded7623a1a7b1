"""Training settings: a typed record, read from TOML."""

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from lattemix.build.head import HeadModel, Normalisation
from model_store import LatteMixError, Metric
from model_store.errors import first_problem
from model_store.manifest import TokenWeighting

RECIPES = Path(__file__).parent / "recipes"
DEFAULT_RECIPE = RECIPES / "default.toml"


class Recipe(BaseModel):
    """The settings of a training run, recorded in the head so that it can be reproduced."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    objective: Literal["elbo", "taught"] = Field(
        "elbo", description="Reconstruct tokens (elbo), or follow a teacher (taught)."
    )
    teacher: str | None = Field(
        None,
        description="Teacher: a backbone's mean pooling, model:NAME of the store, or a .npy file.",
    )
    neighbours: int = Field(
        3, ge=0, description="Sentences nearest by the teacher, added to a batch for each sentence."
    )
    similarity_floor: float = Field(
        0.0, ge=0, lt=1, description="Similarity taught where the teacher's is 0."
    )
    bhattacharyya_weight: float = Field(
        0.0, ge=0, description="Weight of `bhattacharyya`, which js follows, in a taught objective."
    )
    elbo_weight: float = Field(0.0, ge=0, description="Weight of the ELBO in a taught objective.")
    template: str | None = Field(
        None, description="Read the backbone token by token, in this text with {token}."
    )

    layer: int | None = Field(None, ge=0, description="Hidden layer to read; the last if unset.")
    max_tokens: int = Field(256, gt=2, description="Tokens per sentence; the rest is truncated.")
    max_sentences: int | None = Field(None, gt=1, description="Sample size; unset: all sentences.")
    normalisation: Normalisation = Field(
        "centre-equal-norm", description="Normalisation of token vectors before the encoder."
    )
    token_weighting: TokenWeighting = Field("uniform", description="Token weights in the mixture.")

    model: HeadModel = Field("categorical", description="Kind of head; only categorical is served.")
    encoder: Literal["free", "orthogonal"] = Field(
        "free", description="Encoder weights: free, or with orthonormal columns (categorical)."
    )
    latent_dims: int = Field(128, gt=0, description="L, the number of latent variables.")
    classes: int = Field(20, gt=1, description="C, the classes of each latent variable.")
    temperature: float = Field(0.3, gt=0, description="Temperature of the Gumbel-softmax.")
    inference_temperature: float | None = Field(
        None, gt=0, description="Temperature of the softmax; that of training if unset."
    )
    encoder_layers: int = Field(1, ge=1, le=3, description="Linear layers of the encoder.")
    decoder_layers: int = Field(1, ge=1, le=3, description="Linear layers of the decoder.")

    steps: int | None = Field(None, ge=0, description="Training steps; or set epochs.")
    epochs: float | None = Field(None, gt=0, description="Passes over the corpus; or set steps.")
    batch_sentences: int = Field(16, gt=0, description="Sentences per step, with all their tokens.")
    learning_rate: float = Field(2e-3, gt=0, description="Peak learning rate.")
    learning_rate_floor: float = Field(0.0, ge=0, description="Learning rate at both ends.")
    learning_rate_schedule: Literal["linear", "constant"] = Field(
        "linear", description="Linear warm-up and decay, or constant."
    )
    warmup: float = Field(0.1, ge=0, lt=1, description="Share of the steps used for warm-up.")
    beta_schedule: Literal["linear", "cyclical", "constant"] = Field(
        "linear", description="Schedule of the KL weight: from 0 to 1, or constant at 1."
    )
    beta_warmup: float = Field(
        1.0, gt=0, le=1, description="Share of the steps in which a linear KL weight reaches 1."
    )
    observation_variance: float = Field(
        1.0, gt=0, description="Variance of the decoder's Gaussian in the reconstruction."
    )
    free_bits: float = Field(0.3, ge=0, description="KL per latent dim, in nats, without penalty.")
    seed: int = Field(0, ge=0, description="Random seed.")

    metric: Metric = Field("centred", description="Recommended similarity metric of the head.")

    @model_validator(mode="after")
    def _has_one_length(self) -> "Recipe":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("set either steps or epochs")
        return self

    @model_validator(mode="after")
    def _has_teacher_if_taught(self) -> "Recipe":
        if (self.objective == "taught") != (self.teacher is not None):
            raise ValueError("objective 'taught' and a teacher go together: set both or neither")
        if self.objective == "taught" and self.model == "normal":
            raise ValueError("the normal model cannot be taught: choose categorical or autoencoder")
        return self

    @model_validator(mode="after")
    def _is_linear_if_orthogonal(self) -> "Recipe":
        settings = (self.model, self.objective, self.encoder_layers)
        if self.encoder == "orthogonal" and settings != ("categorical", "elbo", 1):
            raise ValueError(
                "encoder 'orthogonal' needs model 'categorical', objective 'elbo' and "
                "encoder_layers 1: set encoder to 'free' for others"
            )
        return self

    def total_steps(self, sentences: int) -> int:
        """Steps of a run over a corpus of this size."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return max(1, round(self.epochs * sentences / self.batch_sentences))

    @classmethod
    def load(cls, path: Path, **overrides: Any) -> "Recipe":
        """Read a TOML file; arguments that are not None take precedence."""
        try:
            settings = tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise LatteMixError(f"Cannot read the recipe {path}: {error.strerror}.") from error
        except ValueError as error:  # not TOML, or not UTF-8
            raise LatteMixError(f"The recipe {path} is not valid TOML: {error}.") from error
        overrides = {key: value for key, value in overrides.items() if value is not None}
        if {"steps", "epochs"} <= overrides.keys():
            raise LatteMixError("Set either steps or epochs, not both.")
        for key, alternative in (("steps", "epochs"), ("epochs", "steps")):
            if key in overrides:
                settings.pop(alternative, None)
        try:
            return cls.model_validate(settings | overrides)
        except ValidationError as error:
            for problem in error.errors():
                if problem["loc"] and (key := str(problem["loc"][0])) in overrides:
                    value, message = overrides[key], problem["msg"]
                    raise LatteMixError(f"--set {key}={value}: {message}.") from error
            raise LatteMixError(f"In the recipe {path}, {first_problem(error)}.") from error

    def describe(self) -> list[str]:
        """One line per setting: its name, value, description and choices."""
        lines = []
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            setting = name if value is None else f"{name}={value}"
            line = f"{setting}: {field.description}"
            if get_origin(field.annotation) is Literal:
                line += f" Choices: {', '.join(get_args(field.annotation))}."
            lines.append(line)
        return lines


def parse_settings(entries: Iterable[str]) -> dict[str, str]:
    """Parse `KEY=VALUE` entries; reject unknown keys."""
    settings = {}
    for entry in entries:
        key, separator, value = entry.partition("=")
        if not separator:
            raise LatteMixError(f"--set takes KEY=VALUE, as in classes=20, not {entry!r}.")
        if key not in Recipe.model_fields:
            choices = ", ".join(Recipe.model_fields)
            raise LatteMixError(f"--set {key}: there is no such setting. Choose among {choices}.")
        settings[key] = value
    return settings
