"""What a head records of its adaptation to labels."""

from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from model_store.manifest import Sha256


class BeforeAfter(BaseModel):
    """A figure, x100, of a head before and after its adaptation."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    figure: Literal["Spearman", "AUC", "accuracy"]
    before: float
    after: float
    gain_interval: tuple[float, float] = Field(description="95 % bootstrap interval of the gain.")
    examples: int = Field(gt=0)


class Adaptation(BaseModel):
    """Part of `head.json`: the labels that a head was adapted to, and what they changed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    base: Sha256 = Field(description="Digest of the head that was adapted.")
    kind: Literal["ratings", "0/1 labels", "triplets"]
    examples: int = Field(gt=0)
    learned: Literal["latent dims", "encoder", "encoder and tokens"]
    strength: float = Field(gt=0, description="Of the penalty that keeps the head near its base.")
    seed: int
    held_out: BeforeAfter = Field(
        description="In cross-validation, by heads that saw fewer labels."
    )
    dev: Mapping[str, BeforeAfter] = Field(description="On other labelled pairs, by file.")
