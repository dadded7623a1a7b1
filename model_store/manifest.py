"""An artifact: a directory of files with a manifest that lists their digests."""

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from model_store.errors import ArtifactError, first_problem
from model_store.latents import LATENTS

SCHEMA_VERSION: Literal[1] = 1

MANIFEST = "manifest.json"
MODEL = "model.onnx"
TOKENIZER = "tokenizer.json"
CENTRE = "centre.npy"
WEIGHTS = "weights.npy"
CALIBRATION = "calibration.json"
_WEIGHT_FILES = (MODEL, TOKENIZER, CENTRE, WEIGHTS)

Precision = Literal["fp32", "fp16", "int8"]

# Points of Spearman x100 on STSb dev that a precision may lose and still be the default choice.
MAX_DROP: dict[Precision, float] = {"fp16": 0.05, "int8": 0.3}
Metric = Literal["cosine", "js", "l2", "bhattacharyya", "centred"]
TokenWeighting = Literal["uniform", "sif", "learned"]

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
# For model and file names: a name that matches cannot leave its directory.
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Record(BaseModel):
    """Immutable; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class BackboneOrigin(_Record):
    """The backbone an artifact was built from."""

    name: str = Field(description="Name of a pinned backbone, hub id, or name of a directory.")
    sha256: Sha256 = Field(description="Digest of the weights (model.safetensors).")
    architecture: str = Field(description="Family: `model_type` in config.json.")
    layer: int = Field(ge=0, description="Hidden layer whose token vectors the head reads.")
    hidden_size: int = Field(gt=0)
    template: str | None = Field(
        None,
        description="Text each token was read in; None: the backbone reads whole sentences.",
    )

    @property
    def is_static(self) -> bool:
        """Whether a token's vector is the same in every text: a table instead of a network."""
        return self.architecture == "static" or self.template is not None


class HeadOrigin(_Record):
    """The head an artifact was built from."""

    sha256: Sha256 = Field(description="Digest of head.safetensors.")
    corpus: str = Field(description="Unlabelled training sentences, and their licence.")
    recipe: Mapping[str, Any] = Field(description="All training settings, including the seed.")


class FileRecord(_Record):
    """Size and digest of a file."""

    bytes: int = Field(ge=0)
    sha256: Sha256


class Parity(_Record):
    """Difference of the graph from its reference, measured when the artifact was assembled."""

    reference: str
    probes: int = Field(gt=0, description="Number of sentences compared.")
    largest_difference: float = Field(
        ge=0, description="Maximum over all elements of all mixtures."
    )
    rank_agreement: float = Field(description="Spearman's rho of the probes' pairwise cosines.")


class Manifest(_Record):
    """`manifest.json`: everything needed to verify and run a model."""

    schema_version: Literal[1] = SCHEMA_VERSION
    name: Name
    precision: Precision
    created: datetime
    lattemix_version: str
    backbone: BackboneOrigin
    head: HeadOrigin
    latent_dims: int = Field(gt=0, description="L: latent variables per token.")
    classes: int = Field(gt=1, description="C: classes of each latent variable.")
    temperature: float = Field(
        gt=0, description="Softmax temperature, folded into the graph's weights."
    )
    max_tokens: int | None = Field(
        gt=2,
        description="Maximum length, including special tokens. None: static models have no limit.",
    )
    token_weighting: TokenWeighting = Field(
        "uniform", description="Origin of weights.npy; without that file all weights are 1."
    )
    recommended_metric: Metric
    files: Mapping[Name, FileRecord]
    parity: Parity | None = Field(None, description="None until it is measured.")
    evaluation: Mapping[str, float] = Field(
        default_factory=dict, description="Spearman x100 by `set/metric`, if measured."
    )
    drop: float | None = Field(
        None, description="Points lost on STSb dev against fp32 by the worst metric, if measured."
    )

    @field_validator("max_tokens")
    @classmethod
    def _static_has_no_limit(cls, max_tokens: int | None, info: ValidationInfo) -> int | None:
        backbone = info.data.get("backbone")  # missing if it is invalid
        if backbone is not None and backbone.is_static:
            return None  # older manifests hold the maximum length of the training sentences
        if max_tokens is None:
            raise ValueError("should be a number, except for a static model")
        return max_tokens

    @field_validator("files")
    @classmethod
    def _has_required_files(
        cls, files: Mapping[str, FileRecord], info: ValidationInfo
    ) -> Mapping[str, FileRecord]:
        # The recommended metric is the default everywhere.
        centre = [CENTRE] if info.data.get("recommended_metric") == "centred" else []
        for required in (MODEL, TOKENIZER, *centre):
            if required not in files:
                raise ValueError(f"{required} is not listed")
        return files

    @property
    def reference(self) -> str:
        """`name:precision`."""
        return f"{self.name}:{self.precision}"

    @property
    def fingerprint(self) -> str:
        """Short hash of the files that determine the mixtures and their recommended metric."""
        digests = [self.files[name].sha256 for name in _WEIGHT_FILES if name in self.files]
        return hashlib.sha256("".join(digests).encode()).hexdigest()[:12]

    @property
    def is_static(self) -> bool:
        """Whether the model is a table of token distributions, without a maximum length."""
        return self.backbone.is_static

    def write(self, directory: Path) -> None:
        """Write `manifest.json` into `directory`."""
        text = json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False)
        (directory / MANIFEST).write_text(text + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Artifact:
    """A directory and its manifest."""

    path: Path
    manifest: Manifest

    @property
    def model(self) -> Path:
        """The path of the ONNX graph."""
        return self.path / MODEL

    @property
    def tokenizer(self) -> Path:
        """The path of `tokenizer.json`."""
        return self.path / TOKENIZER

    @property
    def centre(self) -> Path | None:
        """The path of `centre.npy`, which `centred` subtracts from sqrt(mixture), if any."""
        return self.path / CENTRE if CENTRE in self.manifest.files else None

    @property
    def weights(self) -> Path | None:
        """The path of `weights.npy`, the weight of each token id in a mixture, if any."""
        return self.path / WEIGHTS if WEIGHTS in self.manifest.files else None

    @property
    def latents(self) -> Path | None:
        """The path of `latents.json`, descriptions of the latent classes, if any."""
        return self.path / LATENTS if LATENTS in self.manifest.files else None

    @property
    def calibration(self) -> Path | None:
        """The path of `calibration.json`, the meaning of the model's scores, if known."""
        return self.path / CALIBRATION if CALIBRATION in self.manifest.files else None

    @classmethod
    def read(cls, path: Path) -> "Artifact":
        """Read the manifest in `path`; raise ArtifactError if it is invalid."""
        return cls(path, _parse(path / MANIFEST))

    def verify(self) -> "Artifact":
        """Check the size and digest of every file; return self."""
        for name, expected in self.manifest.files.items():
            _verify_file(self.path / name, expected)
        return self


def file_record(path: Path) -> FileRecord:
    """Return a file's record for a manifest."""
    return FileRecord(bytes=path.stat().st_size, sha256=sha256_of(path))


def sha256_of(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _parse(path: Path) -> Manifest:
    try:
        _check_regular(path)
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtifactError(f"{path} is missing: this is not a complete artifact.") from None
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is not valid JSON: {error}.") from error
    # The version first: a newer schema would otherwise fail on whatever field happens to differ.
    version = raw.get("schema_version") if isinstance(raw, dict) else None
    if version != SCHEMA_VERSION:
        raise ArtifactError(
            f"{path} has schema version {version!r}, and this Latte-Mix reads {SCHEMA_VERSION}: "
            "upgrade Latte-Mix or assemble the model again with `lattemix build`."
        )
    try:
        return Manifest.model_validate(raw)
    except ValidationError as error:
        raise ArtifactError(f"{path} is not a valid manifest: {first_problem(error)}.") from error


def _check_regular(path: Path) -> os.stat_result:
    """Raise ArtifactError unless this is a regular file: reading a pipe or a device may block."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ArtifactError(f"{path} cannot be read: it is not a regular file.")
    return status


def _verify_file(path: Path, expected: FileRecord) -> None:
    remedy = "assemble the model again with `lattemix build`."
    if path.name == CALIBRATION:
        remedy = "calibrate the model again with `lattemix calibrate`."
    try:
        size = _check_regular(path).st_size
        if size != expected.bytes:
            raise ArtifactError(
                f"{path} has {size:,} bytes where its manifest says {expected.bytes:,}: {remedy}"
            )
        digest = sha256_of(path)
    except FileNotFoundError:
        raise ArtifactError(f"{path} is missing: {remedy}") from None
    except OSError as error:
        raise ArtifactError(f"{path} cannot be read: {error.strerror}.") from error
    if digest != expected.sha256:
        raise ArtifactError(
            f"{path} is damaged: its SHA-256 is {digest[:12]}…, not {expected.sha256[:12]}… "
            f"as its manifest says: {remedy}"
        )
