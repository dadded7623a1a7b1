"""A trained head: its files, and its computation in numpy."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from lattemix.build.adaptation import Adaptation
from lattemix.build.backbones.token_vectors import TokenVectors
from model_store import LatteMixError, Metric
from model_store.errors import first_problem
from model_store.manifest import BackboneOrigin, Precision, Sha256, TokenWeighting, sha256_of

SPEC, TENSORS = "head.json", "head.safetensors"
SELECTION_SET = "stsb-dev"  # settings, precisions among them, are selected on it

STATISTICS_SENTENCES = 4096  # sentences to estimate the mean and the centre from
_WEIGHER = ("0.weight", "0.bias", "1.weight", "1.bias")
_CHUNK = 128  # sentences whose token distributions are in memory at once

Floats = NDArray[np.float32]
HeadModel = Literal["categorical", "normal", "autoencoder"]
Normalisation = Literal["none", "equal-norm", "centre", "centre-equal-norm"]


class HeadError(LatteMixError):
    """A head is missing, damaged or inconsistent."""


class HeadSpec(BaseModel):
    """`head.json`: everything about a head except its tensors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    sha256: Sha256 | None = Field(
        None, description="Digest of head.safetensors, set by `Head.save`."
    )
    backbone: BackboneOrigin
    model: HeadModel = "categorical"
    latent_dims: int = Field(gt=0)
    classes: int = Field(gt=1)
    temperature: float = Field(gt=0)
    max_tokens: int = Field(gt=2)
    normalisation: Normalisation
    token_weighting: TokenWeighting = "uniform"
    recommended_metric: Metric
    corpus: str
    recipe: Mapping[str, Any]
    training: Mapping[str, float] = Field(
        default_factory=dict, description="Size of the training run, and its last metrics."
    )
    probes: tuple[str, ...] = Field(
        (), description="Sentences with recorded mixtures, for the parity check."
    )
    evaluation: Mapping[str, float] = Field(
        default_factory=dict,
        description="Spearman x100 by `set/metric`, or `set/metric@precision`.",
    )
    adaptation: Adaptation | None = Field(
        None, description="The labels that the head was adapted to, and what they changed."
    )

    def scores(self, precision: Precision) -> dict[str, float]:
        """Return the evaluation of one precision, by `set/metric`."""
        suffix = "" if precision == "fp32" else precision
        split = [(*key.partition("@"), value) for key, value in self.evaluation.items()]
        return {name: value for name, _, measured, value in split if measured == suffix}

    def drop(self, precision: Precision) -> float | None:
        """Return the points lost on STSb dev against fp32, by the worst metric; None if unknown."""
        full, reduced = self.scores("fp32"), self.scores(precision)
        shared = [key for key in reduced if key.startswith(f"{SELECTION_SET}/") and key in full]
        if precision == "fp32" or not shared:
            return None
        return round(max(full[key] - reduced[key] for key in shared), 2)

    def write(self, directory: Path) -> None:
        """Write `head.json` atomically."""
        text = json.dumps(self.model_dump(mode="json"), indent=2, ensure_ascii=False)
        new = directory / f"{SPEC}.new"
        new.write_text(text + "\n", encoding="utf-8")
        new.replace(directory / SPEC)


@dataclass(frozen=True)
class Head:
    """The VAE's encoder, with the normalisation of its input and the weights of tokens.

    Attributes:
        spec: the content of `head.json`.
        tensors: the content of `head.safetensors`:
            `encoder.N.weight` [out, in] and `encoder.N.bias` [out] of each layer;
            `mean` [H], the mean token vector, which `centre` normalisations subtract;
            `weigher.N.weight` and `weigher.N.bias`, if token weights are computed from the vectors
            by two layers;
            `weighted.ids` [K] and `weighted.weights` [K], the weights of some token ids;
            `centre` [L, C] (categorical), subtracted from sqrt(mixture) by the metric `centred`;
            `probes` [P, L, C] (categorical), the mixtures of the probe sentences by the torch
            backbone and this head.
    """

    spec: HeadSpec
    tensors: Mapping[str, NDArray[Any]]

    @property
    def encoder(self) -> list[tuple[Floats, Floats]]:
        """Weight [out, in] and bias [out] of each layer of the encoder."""
        depth = sum(name.startswith("encoder.") for name in self.tensors) // 2
        names = [f"encoder.{index}" for index in range(depth)]
        return [(self.tensors[f"{n}.weight"], self.tensors[f"{n}.bias"]) for n in names]

    def codes(self, vectors: Floats) -> Floats:
        """Encode token vectors: [T, H] -> [T, L, *]; * depends on the model."""
        hidden = self._normalise(vectors)
        *inner, (weight, bias) = self.encoder
        for inner_weight, inner_bias in inner:
            hidden = np.maximum(hidden @ inner_weight.T + inner_bias, 0)
        codes: Floats = hidden @ weight.T + bias
        return codes.reshape(len(vectors), self.spec.latent_dims, -1)

    def distributions(self, vectors: Floats) -> Floats:
        """Return the latent distributions of tokens: [T, H] -> [T, L, C]."""
        logits = self.codes(vectors) / self.spec.temperature
        odds: Floats = np.exp(logits - logits.max(axis=-1, keepdims=True))
        shares: Floats = odds / odds.sum(axis=-1, keepdims=True)
        return shares

    def mixtures(self, tokens: TokenVectors) -> Floats:
        """Return each sentence's mixture, the weighted mean of its token distributions: [N, L, C].

        A sentence whose tokens all have weight 0 is NaN.
        """
        return np.concatenate([self._mixtures(part) for part in tokens.chunks(_CHUNK)])

    def _mixtures(self, tokens: TokenVectors) -> Floats:
        weights = self.weights(tokens)  # [T]
        weighted = self.distributions(tokens.vectors.astype(np.float32)) * weights[:, None, None]
        sums = [part.sum(axis=0) for part in np.split(weighted, np.cumsum(tokens.lengths)[:-1])]
        totals = np.bincount(tokens.sentence_of, weights, len(tokens)).astype(np.float32)  # [N]
        with np.errstate(invalid="ignore"):
            return (np.stack(sums) / totals[:, None, None]).astype(np.float32)

    def centre_of(self, tokens: TokenVectors) -> Floats:
        """Return the mean of sqrt(mixture) over sentences: [L, C]."""
        roots = np.sqrt(self.mixtures(tokens))
        return np.asarray(np.nanmean(roots, axis=0, dtype=np.float64), np.float32)

    def class_usage(self, tokens: TokenVectors) -> Floats:
        """Return the mean mixture of the sentences: [L, C]."""
        return np.asarray(np.nanmean(self.mixtures(tokens), axis=0, dtype=np.float64), np.float32)

    @property
    def is_weighted(self) -> bool:
        """Whether tokens have different weights."""
        return not self.tensors.keys().isdisjoint(("weighted.ids", "weigher.0.weight"))

    def weights(self, tokens: TokenVectors) -> Floats:
        """Return the weight of each token in its sentence's mixture: [T]."""
        weights = np.ones(len(tokens.ids), np.float32)
        if "weigher.0.weight" in self.tensors:
            weigher = [self.tensors[f"weigher.{name}"] for name in _WEIGHER]
            hidden = np.tanh(self._normalise(tokens.vectors) @ weigher[0].T + weigher[1])
            weights = np.exp(hidden @ weigher[2].T + weigher[3])[:, 0]
        if "weighted.ids" in self.tensors:
            known, values = self.tensors["weighted.ids"], self.tensors["weighted.weights"]
            rows = np.searchsorted(known, tokens.ids).clip(max=len(known) - 1)
            matches = known[rows] == tokens.ids
            weights[matches] = values[rows[matches]]
        return weights

    def _normalise(self, vectors: NDArray[np.floating]) -> Floats:
        return normalise(vectors.astype(np.float32), self.tensors["mean"], self.spec.normalisation)

    def save(self, directory: Path) -> None:
        """Write `head.json` and `head.safetensors` into `directory`.

        The encoder is stored in float16: apply `rounded` to it before evaluating it.
        """
        directory.mkdir(parents=True, exist_ok=True)
        stored = {name: _stored(name, tensor) for name, tensor in self.tensors.items()}
        new = directory / f"{TENSORS}.new"
        save_file(stored, new)
        new.chmod(0o644)  # safetensors makes it readable for the owner only
        spec = self.spec.model_copy(update={"sha256": sha256_of(new)})
        new.replace(directory / TENSORS)
        spec.write(directory)

    @classmethod
    def load(cls, directory: Path) -> "Head":
        """Read a head and check that its parts are consistent."""
        spec_path, tensors_path = directory / SPEC, directory / TENSORS
        for path in (spec_path, tensors_path):
            if not path.is_file():
                raise HeadError(f"{directory} is not a head: it has no {path.name}.")
        try:
            spec = HeadSpec.model_validate_json(spec_path.read_bytes())
            if (digest := sha256_of(tensors_path)) != spec.sha256:
                raise HeadError(
                    f"{tensors_path} is damaged: its SHA-256 is {digest[:12]}…, not "
                    f"{str(spec.sha256)[:12]}… as in {SPEC}."
                )
            stored = load_file(tensors_path)
        except ValidationError as error:
            raise HeadError(f"{spec_path} is not valid: {first_problem(error)}.") from error
        # AttributeError and TypeError: bfloat16 and float8, which numpy does not have.
        except (OSError, SafetensorError, AttributeError, TypeError) as error:
            raise HeadError(f"{tensors_path} cannot be read: {error}.") from error
        head = cls(spec, {name: _loaded(tensor) for name, tensor in stored.items()})
        head._check(tensors_path)
        return head

    def _check(self, path: Path) -> None:
        spec = self.spec
        expected: dict[str, tuple[int, ...]] = {"mean": (spec.backbone.hidden_size,)}
        if spec.model == "categorical":
            expected["centre"] = (spec.latent_dims, spec.classes)
            expected["probes"] = (len(spec.probes), spec.latent_dims, spec.classes)
        expected |= self._weight_shapes()
        for name, tensor in self.tensors.items():
            if tensor.dtype.kind not in ("iu" if name == "weighted.ids" else "f"):
                raise HeadError(f"{path}: {name} has the wrong type, {tensor.dtype}.")
        for name, shape in expected.items():
            if name not in self.tensors:
                raise HeadError(f"{path}: {name} is missing.")
            if self.tensors[name].shape != shape:
                raise HeadError(
                    f"{path}: {name} has shape {self.tensors[name].shape}, not {shape} as {SPEC} "
                    "implies."
                )
        try:
            layers = self.encoder
        except KeyError as error:
            raise HeadError(f"{path}: {error.args[0]} is missing.") from error
        width, code_width = spec.backbone.hidden_size, spec.latent_dims * _values_per_dim(spec)
        for weight, bias in layers:
            fits = weight.ndim == 2 and weight.shape[1] == width and bias.shape == weight.shape[:1]
            width = weight.shape[0] if fits else -1
        if not layers or width != code_width:
            shapes = [weight.shape for weight, _ in layers]
            raise HeadError(
                f"{path}: encoder layers of shapes {shapes} do not map "
                f"{spec.backbone.hidden_size} to {code_width} values."
            )

    def _weight_shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes that the tensors of token weights must have, where there are any."""
        parts = {name.partition(".")[0] for name in self.tensors}
        sizes = {name: tensor.size for name, tensor in self.tensors.items()}
        shapes: dict[str, tuple[int, ...]] = {}
        if "weigher" in parts:
            width = sizes.get("weigher.0.bias", 1)
            layers = ((width, self.spec.backbone.hidden_size), (width,), (1, width), (1,))
            shapes |= {f"weigher.{n}": s for n, s in zip(_WEIGHER, layers, strict=True)}
        if "weighted" in parts:
            known = sizes.get("weighted.ids") or 1  # not 0
            shapes |= {"weighted.ids": (known,), "weighted.weights": (known,)}
        return shapes


def _values_per_dim(spec: HeadSpec) -> int:
    """Number of values that the encoder computes for each latent dim."""
    return {"categorical": spec.classes, "normal": 2, "autoencoder": 1}[spec.model]


def normalise(tokens: Floats, mean: Floats, how: Normalisation) -> Floats:
    """Normalise token vectors [T, H] for the encoder.

    Equal norm is sqrt(H), so that each coordinate has a variance of about one.
    """
    if how.startswith("centre"):
        tokens = tokens - mean
    if how.endswith("equal-norm"):
        norm = np.linalg.norm(tokens, axis=-1, keepdims=True)
        tokens = tokens / np.maximum(norm, 1e-12) * np.float32(np.sqrt(tokens.shape[-1]))
    return tokens


def rounded(tensor: Floats) -> Floats:
    """Round an encoder tensor to the values that `Head.save` stores."""
    return tensor.astype(np.float16).astype(np.float32)


def _stored(name: str, tensor: NDArray[Any]) -> NDArray[Any]:
    # safetensors writes memory as it is, which for a transposed array is another tensor.
    stored = tensor.astype(np.float16) if name.startswith("encoder.") else tensor
    return np.ascontiguousarray(stored)


def _loaded(tensor: NDArray[Any]) -> NDArray[Any]:
    return tensor.astype(np.float32) if tensor.dtype.kind == "f" else tensor
