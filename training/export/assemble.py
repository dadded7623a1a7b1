"""Backbone + head -> a verified artifact in the store."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file

from app import __version__
from app.engine.tokenization import Tokenizer
from model_store import Artifact, Manifest, Store
from model_store.manifest import CENTRE, MODEL, TOKENIZER, WEIGHTS, HeadOrigin, describe
from model_store.store import check_name
from training.backbones import Checkpoint, TokenVectors, open_backbone
from training.backbones.words import TABLE
from training.export.build import build
from training.export.families import ExportError
from training.export.parity import measure
from training.head import Floats, Head

# A right graph differs from torch by rounding alone, a few 1e-6; a wrong one by far more.
LARGEST_DIFFERENCE = 1e-4


def assemble(
    head_directory: Path,
    store: Store,
    name: str,
    backbone: str | None = None,
    tell: Callable[[str], None] = lambda message: None,
) -> Artifact:
    """Build, check and publish the artifact `name` from a head and its backbone.

    Args:
        head_directory: where `head.json` and `head.safetensors` are.
        store: where the artifact goes.
        name: what it will answer to.
        backbone: a directory or hub id to take the backbone from, instead of the head's own.
        tell: called with a line about each step.
    """
    check_name(name)
    head = Head.load(head_directory)
    source = backbone or head.spec.backbone.name
    tell(f"Fetching the backbone {source}")
    with open_backbone(source) as checkpoint:
        checkpoint.check_digest(head.spec.backbone)
        checkpoint.check_length(head.spec.max_tokens)
        tell("Building the graph")
        model = build(checkpoint, head)
        with store.publish(name, "fp32") as staging:
            (staging / MODEL).write_bytes(model.SerializeToString(deterministic=True))
            shutil.copyfile(checkpoint.tokenizer, staging / TOKENIZER)
            np.save(staging / CENTRE, head.tensors["centre"])
            if head.is_weighted:
                np.save(staging / WEIGHTS, _vocabulary_weights(checkpoint, head))
            artifact = Artifact(staging, _manifest(staging, name, head))
            tell("Checking it against the reference")
            _check_parity(artifact, head).write(staging)
    return store.open(f"{name}:fp32")


def _vocabulary_weights(checkpoint: Checkpoint, head: Head) -> Floats:
    """How much each token counts, known by its id or learned from its vector: [V]."""
    size = Tokenizer(checkpoint.tokenizer, head.spec.max_tokens).vocabulary_size
    vectors: NDArray[np.floating] = np.zeros((size, head.spec.backbone.hidden_size), np.float32)
    if checkpoint.is_static:
        vectors = load_file(checkpoint.weights)[TABLE]
    ids, ones = np.arange(size, dtype=np.int32), np.ones(size, np.int32)
    return head.weights(TokenVectors(vectors, ids, ones))


def _manifest(staging: Path, name: str, head: Head) -> Manifest:
    spec = head.spec
    return Manifest(
        name=name,
        precision="fp32",
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
        evaluation=spec.evaluation,
    )


def _check_parity(artifact: Artifact, head: Head) -> Manifest:
    parity = measure(artifact, head)
    if not parity.largest_difference <= LARGEST_DIFFERENCE:
        raise ExportError(
            f"The graph differs from the reference by up to {parity.largest_difference:.1e} where "
            f"{LARGEST_DIFFERENCE:.0e} is allowed: the head, the tokenizer or this machine's ONNX "
            "Runtime is not what it was trained with. Nothing was published."
        )
    return artifact.manifest.model_copy(update={"parity": parity})
