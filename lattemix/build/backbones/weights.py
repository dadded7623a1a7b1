"""A backbone's safetensors: one file, or shards listed by an index. Never a pickle."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors.numpy import load_file

from model_store import LatteMixError
from model_store.manifest import sha256_of

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"

_SUFFIX = ".safetensors"


class BackboneError(LatteMixError):
    """A backbone cannot be found, or is not what it should be."""


def weight_files(directory: Path) -> list[Path]:
    """The weight files in `directory`, sorted by name; empty if it has none.

    One file is preferred over shards, as in transformers.
    """
    if (single := directory / WEIGHTS).is_file():
        return [single]
    if not (index := directory / INDEX).is_file():
        return []
    files = [directory / name for name in shard_names(index)]
    for file in files:
        if not file.is_file():
            raise BackboneError(f"{file}, which {INDEX} names, is missing.")
    return files


def shard_names(index: Path) -> list[str]:
    """The names of the files that hold the tensors of a sharded checkpoint, sorted."""
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
            raise BackboneError(f"{index} names {name!r}, which is outside its directory.")
        if not name.endswith(_SUFFIX):
            raise BackboneError(f"{index} names {name!r}: only {_SUFFIX} files are read.")
    return sorted(names)


def digest(files: Sequence[Path]) -> str:
    """The SHA-256 of one file; of shards, that of what `sha256sum INDEX SHARD...` prints."""
    if [file.name for file in files] == [WEIGHTS]:
        return sha256_of(files[0])
    listed = sorted([files[0].with_name(INDEX), *files], key=lambda file: file.name)
    lines = [f"{sha256_of(file)}  {file.name}\n" for file in listed]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def read_tensors(files: Sequence[Path]) -> dict[str, NDArray[Any]]:
    """Every tensor of every file."""
    return {name: tensor for file in files for name, tensor in load_file(file).items()}
