"""A backbone on disk: config, weights and tokenizer, read and checked."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from lattemix.build.backbones.weights import (
    WEIGHTS,
    BackboneError,
    digest,
    read_tensors,
    weight_files,
)
from lattemix.build.families import FAMILIES
from model_store.manifest import BackboneOrigin, sha256_of

CONFIG, TOKENIZER = "config.json", "tokenizer.json"

# Families of which the first position is the one after the padding token's id.
COUNTS_FROM_PADDING = ("roberta", "xlm-roberta", "camembert", "mpnet")


@dataclass(frozen=True)
class Checkpoint:
    """A backbone on disk: `config.json`, `tokenizer.json`, and one safetensors file or shards."""

    name: str
    directory: Path
    config: dict[str, Any]
    sha256: str  # of the weights

    @classmethod
    def read(cls, directory: Path, name: str | None = None) -> "Checkpoint":
        """Check that `directory` holds a backbone and record the digest of its weights."""
        source = name or str(directory)
        config = read_config(directory, source)
        files = weight_files(directory)
        if not files:
            raise BackboneError(_without_weights(directory, source))
        if not (directory / TOKENIZER).is_file():
            raise BackboneError(
                f"{source} has no {TOKENIZER}: write it with transformers, "
                f"`AutoTokenizer.from_pretrained({source!r}).save_pretrained(DIR)`, beside "
                f"{CONFIG} and the weights."
            )
        return cls(name or directory.resolve().name, directory, config, digest(files))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Every weight by its name, from all files."""
        return read_tensors(weight_files(self.directory))

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

    def check_digest(self, wanted: BackboneOrigin) -> None:
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
                "lower it in the recipe or with --set max_tokens=N."
            )

    @property
    def positions(self) -> int | None:
        """The most tokens it can read, where that is limited."""
        positions: int | None = self.config.get("max_position_embeddings")
        if positions is None or self.config["model_type"] not in COUNTS_FROM_PADDING:
            return positions
        return positions - int(self.config["pad_token_id"]) - 1

    @property
    def tokenizer(self) -> Path:
        """The tokenizer's definition."""
        return self.directory / TOKENIZER


def read_config(directory: Path, source: str) -> dict[str, Any]:
    """The `config.json` of a backbone; refuse one that is not of an encoder.

    Args:
        directory: where it is.
        source: the backbone's name in error messages.
    """
    path = directory / CONFIG
    if not path.is_file():
        raise BackboneError(f"{source} has no {CONFIG}: it is not a backbone.")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BackboneError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(config, dict) or "model_type" not in config:
        raise BackboneError(f"{path} does not say its model_type.")
    if config.get("is_encoder_decoder"):
        raise BackboneError(unsupported(source, config["model_type"], "an encoder-decoder"))
    return config


def unsupported(source: str, model_type: str, kind: str) -> str:
    """The error for a model that is not an encoder of text."""
    return (
        f"{source} is {kind} (model_type {model_type!r}): a backbone is a text encoder, such as "
        f"{', '.join(FAMILIES)}, or a table of static word vectors."
    )


def pickle_problem(source: str, file: str) -> str:
    """The error for weights that are only there as a pickle."""
    return (
        f"{source} has only {file}, a pickle, which can run code when loaded: if you trust it, "
        f"convert it with transformers, `AutoModel.from_pretrained({source!r})"
        f".save_pretrained(DIR)` and `AutoTokenizer.from_pretrained({source!r})"
        ".save_pretrained(DIR)`, and give --backbone DIR."
    )


def _without_weights(directory: Path, source: str) -> str:
    pickles = sorted(path.name for path in directory.glob("pytorch_model*.bin"))
    if pickles:
        return pickle_problem(source, pickles[0])
    return f"{source} has no {WEIGHTS}: it is not a backbone."
