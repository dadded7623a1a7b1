"""Backbone + head -> a verified artifact in the store."""

import math
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from lattemix import __version__
from lattemix.build.arithmetic import Arithmetic, Bytes, Half
from lattemix.build.backbones import Checkpoint, TokenVectors, open_backbone
from lattemix.build.backbones.words import TABLE
from lattemix.build.build import build
from lattemix.build.calibration import calibrate
from lattemix.build.families import ExportError
from lattemix.build.head import Floats, Head
from lattemix.build.parity import measure
from lattemix.tokenization import Tokenizer
from model_store import Artifact, Manifest, Precision, Store
from model_store.latents import LATENTS, Latents
from model_store.latents import read as read_latents
from model_store.latents import write as write_latents
from model_store.manifest import CENTRE, MODEL, TOKENIZER, WEIGHTS, HeadOrigin, describe
from model_store.store import check_name

# A right graph differs from torch by rounding alone, in float32 a few 1e-6; a wrong one by far
# more. Bytes may move a single probability a lot, but not how alike sentences are.
LARGEST_DIFFERENCE: dict[Precision, float] = {"fp32": 1e-4, "fp16": 0.05, "int8": math.inf}
LEAST_AGREEMENT = 0.9


def assemble(
    head_directory: Path,
    store: Store,
    name: str,
    backbone: str | None = None,
    tell: Callable[[str], None] = lambda message: None,
    precisions: Sequence[Precision] = ("fp32",),
) -> list[Artifact]:
    """Build, check and publish the artifacts of `name` from a head and its backbone.

    Args:
        head_directory: where `head.json` and `head.safetensors` are.
        store: where the artifact goes.
        name: what it will answer to.
        backbone: a directory or hub id to take the backbone from, instead of the head's own.
        tell: called with a line about each step.
        precisions: one artifact is made in each.
    """
    check_name(name)
    head = Head.load(head_directory)
    latents = _latents(head_directory / LATENTS, head)
    source = backbone or head.spec.backbone.name
    tell(f"Opening the backbone {source}")
    with open_backbone(source) as checkpoint:
        checkpoint.check_digest(head.spec.backbone)
        checkpoint.check_length(head.spec.max_tokens)
        for precision in precisions:
            tell(f"Building the graph in {precision}")
            serialized = _build(checkpoint, head, precision).SerializeToString(deterministic=True)
            with store.publish(name, precision) as staging:
                (staging / MODEL).write_bytes(serialized)
                del serialized  # before it is loaded from there
                shutil.copyfile(checkpoint.tokenizer, staging / TOKENIZER)
                np.save(staging / CENTRE, head.tensors["centre"])
                if latents is not None:
                    write_latents(latents, str(head.spec.sha256), staging)
                if head.is_weighted:
                    np.save(staging / WEIGHTS, _vocabulary_weights(checkpoint, head))
                artifact = Artifact(staging, _manifest(staging, name, head, precision))
                tell("Checking it against the reference")
                _check_parity(artifact, head).write(staging)
    return [store.open(f"{name}:{precision}") for precision in precisions]


def _latents(path: Path, head: Head) -> Latents | None:
    """What the head's latent classes mean, if somebody has found out."""
    spec = head.spec
    known = path.is_file()
    return read_latents(path, spec.sha256, spec.latent_dims, spec.classes) if known else None


def _build(checkpoint: Checkpoint, head: Head, precision: Precision) -> onnx.ModelProto:
    if precision == "int8":
        ranges = calibrate(checkpoint, head)
        return build(checkpoint, head, lambda graph: Bytes(graph, ranges))
    return build(checkpoint, head, Half if precision == "fp16" else Arithmetic)


def _vocabulary_weights(checkpoint: Checkpoint, head: Head) -> Floats:
    """How much each token counts, known by its id or learned from its vector: [V]."""
    size = Tokenizer(checkpoint.tokenizer, head.spec.max_tokens).vocabulary_size
    vectors: NDArray[np.floating] = np.zeros((size, head.spec.backbone.hidden_size), np.float32)
    if checkpoint.is_static:
        vectors = checkpoint.tensors()[TABLE]
    ids, ones = np.arange(size, dtype=np.int32), np.ones(size, np.int32)
    return head.weights(TokenVectors(vectors, ids, ones))


def _manifest(staging: Path, name: str, head: Head, precision: Precision) -> Manifest:
    spec = head.spec
    return Manifest(
        name=name,
        precision=precision,
        created=datetime.now(UTC).replace(microsecond=0),
        lattemix_version=__version__,
        backbone=spec.backbone,
        head=HeadOrigin(sha256=spec.sha256, corpus=spec.corpus, recipe=spec.recipe),
        latent_dims=spec.latent_dims,
        classes=spec.classes,
        temperature=spec.temperature,
        max_tokens=spec.max_tokens,
        token_weighting=spec.token_weighting,
        recommended_metric=spec.recommended_metric,
        files={path.name: describe(path) for path in sorted(staging.iterdir())},
        evaluation=spec.scores(precision),
        drop=spec.drop(precision),
    )


def _check_parity(artifact: Artifact, head: Head) -> Manifest:
    """Record how near the graph is to its reference; refuse one that is too far."""
    parity = measure(artifact, head)
    precision = artifact.manifest.precision
    far = not parity.largest_difference <= LARGEST_DIFFERENCE[precision]
    if far or not parity.rank_agreement >= LEAST_AGREEMENT:
        raise ExportError(
            f"The {precision} graph differs from the reference by up to "
            f"{parity.largest_difference:.1e} (at most {LARGEST_DIFFERENCE[precision]:g} is "
            f"allowed), and its ranks of the probes correlate {parity.rank_agreement:.3f} with it "
            f"(at least {LEAST_AGREEMENT}): the head, the tokenizer or this machine's ONNX Runtime "
            f"is not what it was trained with. {artifact.manifest.reference} was not published."
        )
    return artifact.manifest.model_copy(update={"parity": parity})
