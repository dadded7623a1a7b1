"""Descriptions of latent classes in words: `latents.json`, an optional file of an artifact."""

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from model_store.errors import ArtifactError, read_json

LATENTS = "latents.json"


class LatentClass(BaseModel):
    """A class of a latent dim, described by the training corpus."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    usage: float  # share of the corpus's tokens in this class
    words: dict[str, float]  # typical words, with the smoothed share of each word's tokens here


Latents = list[list[LatentClass]]  # [L][C]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    head: str  # SHA-256 of the head it describes
    latents: Latents


def write(latents: Latents, head: str, directory: Path) -> None:
    """Write `latents.json` for the head of this SHA-256, one latent dim per line."""
    dims = [
        json.dumps([c.model_dump() for c in dim], ensure_ascii=False, separators=(",", ":"))
        for dim in latents
    ]
    text = '{"head":"' + head + '","latents":[\n' + ",\n".join(dims) + "\n]}\n"
    (directory / LATENTS).write_text(text, encoding="utf-8")


def read(path: Path, head: str | None, latent_dims: int, classes: int) -> Latents:
    """Read `latents.json` and check that it describes this head."""
    file = read_json(path, _File)
    if file.head != head:
        raise ArtifactError(
            f"{path} describes another head, {file.head[:12]}…: write it again with "
            "`lattemix-train describe`, or remove it."
        )
    sizes = {len(dim) for dim in file.latents}
    if len(file.latents) != latent_dims or sizes != {classes}:
        raise ArtifactError(
            f"{path} describes {len(file.latents)} latent dims of {sorted(sizes)} classes, not "
            f"{latent_dims} of {classes}."
        )
    return file.latents
