"""What latent classes mean, in words: the file that an artifact may carry about it."""

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from model_store.errors import ArtifactError, first_problem

LATENTS = "latents.json"


class LatentClass(BaseModel):
    """One class of one latent dim, as the training corpus shows it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    usage: float  # share of the corpus's tokens that are in it
    words: dict[str, float]  # those most in it, first the most, and the share of each that is


Latents = list[list[LatentClass]]  # [L][C]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    head: str  # SHA-256 of the head that it tells of
    latents: Latents


def write(latents: Latents, head: str, directory: Path) -> None:
    """Write `latents.json` about the head of this SHA-256, a latent dim on each line."""
    dims = [
        json.dumps([c.model_dump() for c in dim], ensure_ascii=False, separators=(",", ":"))
        for dim in latents
    ]
    text = '{"head":"' + head + '","latents":[\n' + ",\n".join(dims) + "\n]}\n"
    (directory / LATENTS).write_text(text, encoding="utf-8")


def read(path: Path, head: str | None, latent_dims: int, classes: int) -> Latents:
    """Read what is told of a head, or say precisely why it cannot be used."""
    try:
        file = _File.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}.") from error
    except ValidationError as error:
        raise ArtifactError(f"{path} is not valid: {first_problem(error)}.") from error
    if file.head != head:
        raise ArtifactError(
            f"{path} tells of another head, {file.head[:12]}…: write it anew with "
            "`lattemix-train describe`, or remove it."
        )
    latents = file.latents
    found = (len(latents), {len(dim) for dim in latents})
    if found != (latent_dims, {classes}):
        raise ArtifactError(
            f"{path} tells of {found[0]} latent dims of {sorted(found[1])} classes, not of "
            f"{latent_dims} of {classes}."
        )
    return latents
