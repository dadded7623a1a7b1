"""A backbone on disk: config, tokenizer and safetensors. Pickles are never read."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from pydantic import ValidationError
from safetensors.numpy import load_file

from lattemix.build.families import FAMILIES
from model_store import LatteMixError
from model_store.errors import first_problem
from model_store.manifest import TOKENIZER, BackboneOrigin, sha256_of

CONFIG = "config.json"
SAFETENSORS, SHARD_INDEX = "model.safetensors", "model.safetensors.index.json"

# Families whose first position id is the padding id + 1.
_PADDING_OFFSET = ("roberta", "xlm-roberta", "camembert", "mpnet")


class BackboneError(LatteMixError):
    """A backbone cannot be found or used."""


@dataclass(frozen=True)
class Checkpoint:
    """A directory with `config.json`, `tokenizer.json` and one safetensors file or shards."""

    name: str
    directory: Path
    config: dict[str, Any]
    sha256: str  # of the weights

    @classmethod
    def read(cls, directory: Path, name: str | None = None) -> "Checkpoint":
        """Check that `directory` is a backbone and compute the digest of its weights."""
        source = name or str(directory)
        config = read_config(directory, source)
        files = weight_files(directory)
        if not files:
            if pickles := sorted(directory.glob("pytorch_model*.bin")):
                raise pickle_error(source, pickles[0].name)
            raise BackboneError(f"{source} has no {SAFETENSORS}: it is not a backbone.")
        if not (directory / TOKENIZER).is_file():
            raise BackboneError(
                f"{source} has no {TOKENIZER}: write it with transformers, "
                f"`AutoTokenizer.from_pretrained({source!r}).save_pretrained(DIR)`, beside "
                f"{CONFIG} and the weights."
            )
        return cls(name or directory.resolve().name, directory, config, _digest(files))

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Read all weights, by name."""
        files = weight_files(self.directory)
        return {name: tensor for file in files for name, tensor in load_file(file).items()}

    @cached_property
    def tokenizer_sha256(self) -> str:
        """The digest of the tokenizer, which `sha256` does not cover."""
        return sha256_of(self.tokenizer)

    @property
    def is_static(self) -> bool:
        """Whether this is a table of token vectors, not a transformer."""
        return bool(self.config["model_type"] == "static")

    @property
    def ignored_ids(self) -> list[int]:
        """The ids of a table's special and unknown tokens, which have no weight in a mixture."""
        if not self.is_static:
            return []
        unknown = [self.config["unknown_id"]] if "unknown_id" in self.config else []
        ids: list[int] = self.config.get("ignored_ids", unknown)
        return ids

    @property
    def layer(self) -> int | None:
        """The only layer that a table has vectors of; None for a transformer."""
        return self.origin(0, 1).layer if self.is_static else None

    def origin(self, layer: int, hidden_size: int) -> BackboneOrigin:
        """Describe this backbone, read at a layer; a distilled table is described by its source."""
        fields = {"name": self.name, "sha256": self.sha256, "layer": layer}
        fields["architecture"] = self.config["model_type"]
        if self.is_static and "source" in self.config:
            fields = self.config["source"]
        try:
            return BackboneOrigin.model_validate({**fields, "hidden_size": hidden_size})
        except (ValidationError, TypeError) as error:
            reason = first_problem(error) if isinstance(error, ValidationError) else error
            raise BackboneError(f"{self.directory / CONFIG}, source: {reason}.") from error

    def check_digest(self, expected: BackboneOrigin) -> None:
        """Raise BackboneError unless a head was trained on this backbone.

        A transformer also passes as the source of the table that the head was trained on.
        """
        origin = self.origin(expected.layer, expected.hidden_size)
        if origin.sha256 != expected.sha256:
            raise BackboneError(
                f"The head was trained on {expected.name} with weights of SHA-256 "
                f"{expected.sha256[:12]}…, but {self.name} has {origin.sha256[:12]}…: train a head "
                "for it with `lattemix-train train`."
            )
        if self.is_static and (origin.layer, origin.template) != (
            expected.layer,
            expected.template,
        ):
            raise BackboneError(
                f"The head was trained on {_reading(expected)}, but {self.name} was distilled from "
                f"{_reading(origin)}: pass the transformer itself."
            )

    def check_length(self, max_tokens: int) -> None:
        """Raise BackboneError if the backbone has fewer than `max_tokens` positions."""
        if self.positions is not None and max_tokens > self.positions:
            raise BackboneError(
                f"max_tokens is {max_tokens}, but {self.name} has {self.positions} positions: "
                "lower it in the recipe or with --set max_tokens=N."
            )

    @property
    def positions(self) -> int | None:
        """The maximum number of tokens; None if unlimited."""
        positions: int | None = self.config.get("max_position_embeddings")
        if positions is None or self.config["model_type"] not in _PADDING_OFFSET:
            return positions
        return positions - int(self.config["pad_token_id"]) - 1

    @property
    def tokenizer(self) -> Path:
        """The path of `tokenizer.json`."""
        return self.directory / TOKENIZER


def _reading(origin: BackboneOrigin) -> str:
    """What was read of a backbone, for error messages."""
    template = "" if origin.template is None else f" with the template {origin.template!r}"
    return f"layer {origin.layer} of {origin.name}{template}"


def read_config(directory: Path, source: str) -> dict[str, Any]:
    """Read `config.json` and check that it is an encoder's.

    Args:
        directory: the backbone's directory.
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
        raise BackboneError(f"{path} has no model_type.")
    if config.get("is_encoder_decoder"):
        raise unsupported(source, config["model_type"], "an encoder-decoder")
    return config


def weight_files(directory: Path) -> list[Path]:
    """Return the safetensors files in `directory`, sorted; a single file is preferred to shards."""
    if (single := directory / SAFETENSORS).is_file():
        return [single]
    if not (index := directory / SHARD_INDEX).is_file():
        return []
    files = [directory / name for name in shard_names(index)]
    for file in files:
        if not file.is_file():
            raise BackboneError(f"{file}, listed in {SHARD_INDEX}, is missing.")
    return files


def shard_names(index: Path) -> list[str]:
    """Return the file names in the index of a sharded checkpoint, sorted."""
    try:
        content = json.loads(index.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BackboneError(f"{index} is not valid JSON: {error}.") from error
    tensors = content.get("weight_map") if isinstance(content, dict) else None
    names = set(tensors.values()) if isinstance(tensors, dict) else set()
    if not names or not all(isinstance(name, str) for name in names):
        raise BackboneError(f"{index} has no weight_map from tensors to file names.")
    for name in names:
        if Path(name).name != name:
            raise BackboneError(f"{index} lists {name!r}, which is outside its directory.")
        if not name.endswith(".safetensors"):
            raise BackboneError(f"{index} lists {name!r}: only .safetensors files are read.")
    return sorted(names)


def _digest(files: Sequence[Path]) -> str:
    """SHA-256 of a single file; for shards, of the output of `sha256sum INDEX SHARD...`."""
    if [file.name for file in files] == [SAFETENSORS]:
        return sha256_of(files[0])
    files = sorted([files[0].with_name(SHARD_INDEX), *files], key=lambda file: file.name)
    lines = [f"{sha256_of(file)}  {file.name}\n" for file in files]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def unsupported(source: str, model_type: str, kind: str) -> BackboneError:
    """Return the error for a model that is not a text encoder."""
    return BackboneError(
        f"{source} is {kind} (model_type {model_type!r}): a backbone is a text encoder, such as "
        f"{', '.join(FAMILIES)}, or a table of static word vectors."
    )


def pickle_error(source: str, file: str) -> BackboneError:
    """Return the error for a backbone whose weights are only available as a pickle."""
    return BackboneError(
        f"{source} has only {file}, a pickle, which can run code when loaded: if you trust it, "
        f"convert it with transformers, `AutoModel.from_pretrained({source!r})"
        f".save_pretrained(DIR)` and `AutoTokenizer.from_pretrained({source!r})"
        ".save_pretrained(DIR)`, and pass --backbone DIR."
    )
