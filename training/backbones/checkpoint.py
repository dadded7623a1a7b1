"""A backbone on disk: three files, read and checked. Never a pickle."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from model_store import LatteMixError
from model_store.manifest import Backbone, sha256_of

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"

# Families of which the first position is the one after the padding token's id.
COUNTS_FROM_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet")


class BackboneError(LatteMixError):
    """A backbone cannot be had, or is not what it should be."""


@dataclass(frozen=True)
class Checkpoint:
    """A backbone on disk: `config.json`, `model.safetensors` and `tokenizer.json`."""

    name: str
    directory: Path
    config: dict[str, Any]
    sha256: str

    @classmethod
    def read(cls, directory: Path, name: str | None = None) -> "Checkpoint":
        """Check that `directory` holds a backbone and record its digest."""
        for required in (CONFIG, WEIGHTS, TOKENIZER):
            if not (directory / required).is_file():
                raise BackboneError(_missing(directory, required))
        try:
            config = json.loads((directory / CONFIG).read_text(encoding="utf-8"))
        except ValueError as error:
            raise BackboneError(f"{directory / CONFIG} is not valid JSON: {error}.") from error
        if not isinstance(config, dict) or "model_type" not in config:
            raise BackboneError(f"{directory / CONFIG} does not say its model_type.")
        return cls(
            name or directory.resolve().name, directory, config, sha256_of(directory / WEIGHTS)
        )

    @cached_property
    def tokenizer_sha256(self) -> str:
        """The same weights with another tokenizer are another backbone."""
        return sha256_of(self.tokenizer)

    @property
    def is_static(self) -> bool:
        """Whether this is a table of word vectors rather than a transformer."""
        return bool(self.config["model_type"] == "static")

    @property
    def unknown_id(self) -> int | None:
        """The token that stands for words the backbone knows nothing of, if it is to be ignored."""
        return self.config.get("unknown_id") if self.is_static else None

    def check_digest(self, wanted: Backbone) -> None:
        """Refuse other weights than the ones a head was trained on."""
        if self.sha256 != wanted.sha256:
            raise BackboneError(
                f"The head was trained on {wanted.name} with weights of SHA-256 "
                f"{wanted.sha256[:12]}…, but {self.name} has {self.sha256[:12]}…: train a head for "
                "it with `lattemix-train train`."
            )

    def check_length(self, max_tokens: int) -> None:
        """Refuse to read sentences longer than the backbone has positions for."""
        if self.positions is not None and max_tokens > self.positions:
            raise BackboneError(
                f"max_tokens is {max_tokens}, but {self.name} has {self.positions} positions: "
                "lower it in the recipe or with --max-tokens."
            )

    @property
    def positions(self) -> int | None:
        """The most tokens it can read, where that is limited."""
        positions: int | None = self.config.get("max_position_embeddings")
        if positions is None or self.config["model_type"] not in COUNTS_FROM_PADDING:
            return positions
        return positions - int(self.config["pad_token_id"]) - 1

    @property
    def weights(self) -> Path:
        """The safetensors file."""
        return self.directory / WEIGHTS

    @property
    def tokenizer(self) -> Path:
        """The tokenizer's definition."""
        return self.directory / TOKENIZER


def _missing(directory: Path, required: str) -> str:
    if required == WEIGHTS and (directory / "pytorch_model.bin").is_file():
        return (
            f"{directory} has only pytorch_model.bin, a pickle, which can run code when read: "
            "convert it once with transformers, `AutoModel.from_pretrained(DIR)"
            ".save_pretrained(DIR, safe_serialization=True)`, where you trust it."
        )
    if required == TOKENIZER:
        return (
            f"{directory} has no {TOKENIZER}: write it once with transformers, "
            "`AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)`."
        )
    return f"{directory} has no {required}: it is not a backbone."
