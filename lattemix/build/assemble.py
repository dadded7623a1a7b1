"""Assemble artifacts: open the backbone, build the model, check its parity, publish it."""

import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from lattemix import __version__
from lattemix.build.activations import measure_activations
from lattemix.build.backbones import Checkpoint, TokenVectors
from lattemix.build.backbones.words import TABLE
from lattemix.build.distill import open_origin
from lattemix.build.float16 import Float16Graph
from lattemix.build.graph import Graph, Int8Graph
from lattemix.build.head import Floats, Head
from lattemix.build.network import build_model, stores_distributions
from lattemix.build.parity import check_parity
from lattemix.tokenization import Tokenizer
from model_store import Artifact, Manifest, Precision, Store
from model_store.calibration import CALIBRATION
from model_store.calibration import read as read_calibration
from model_store.latents import LATENTS, Latents
from model_store.latents import read as read_latents
from model_store.latents import write as write_latents
from model_store.manifest import CENTRE, MODEL, TOKENIZER, WEIGHTS, HeadOrigin, file_record
from model_store.store import check_name


def assemble(
    head_directory: Path,
    store: Store,
    name: str,
    backbone: str | None = None,
    tell: Callable[[str], None] = lambda message: None,
    precisions: Sequence[Precision] = ("fp32",),
) -> list[Artifact]:
    """Build, check and publish an artifact of `name` in each precision.

    Args:
        head_directory: directory of `head.json` and `head.safetensors`.
        store: where to publish.
        name: the model's name in the store.
        backbone: directory or hub id to take the backbone from; default: the head's own.
        tell: called with a progress message before each step.
        precisions: precisions to build.
    """
    check_name(name)
    head = Head.load(head_directory)
    latents = _latents(head_directory / LATENTS, head)
    calibration = head_directory / CALIBRATION
    if calibration.is_file():
        read_calibration(calibration, head.spec.sha256)  # raises if it is of another head
    with open_origin(head.spec.backbone, backbone, tell) as checkpoint:
        checkpoint.check_length(head.spec.max_tokens)
        for precision in precisions:
            tell(f"Building the graph in {precision}")
            model = build_precision(checkpoint, head, precision)
            serialized = model.SerializeToString(deterministic=True)
            with store.publish(name, precision) as staging:
                (staging / MODEL).write_bytes(serialized)
                del model, serialized  # the parity check loads the file
                shutil.copyfile(checkpoint.tokenizer, staging / TOKENIZER)
                np.save(staging / CENTRE, head.tensors["centre"])
                if latents is not None:
                    write_latents(latents, str(head.spec.sha256), staging)
                if calibration.is_file():
                    shutil.copyfile(calibration, staging / CALIBRATION)
                if head.is_weighted:
                    np.save(staging / WEIGHTS, _vocabulary_weights(checkpoint, head))
                manifest = _manifest(staging, name, head, precision)
                tell("Checking it against the reference")
                stored = stores_distributions(checkpoint, head)
                parity = check_parity(Artifact(staging, manifest), head, stored)
                manifest.model_copy(update={"parity": parity}).write(staging)
    return [store.open(f"{name}:{precision}") for precision in precisions]


def build_precision(checkpoint: Checkpoint, head: Head, precision: Precision) -> onnx.ModelProto:
    """Return the model in a precision; int8 measures activations first."""
    if precision == "int8":
        stored = stores_distributions(checkpoint, head)
        graph: Graph = Int8Graph({} if stored else measure_activations(checkpoint, head))
    else:
        graph = Float16Graph() if precision == "fp16" else Graph()
    return build_model(checkpoint, head, graph)


def _latents(path: Path, head: Head) -> Latents | None:
    """The descriptions of the head's latent classes, if it has any."""
    if not path.is_file():
        return None
    spec = head.spec
    return read_latents(path, spec.sha256, spec.latent_dims, spec.classes)


def _vocabulary_weights(checkpoint: Checkpoint, head: Head) -> Floats:
    """The weight of every token in the vocabulary: [V]."""
    size = Tokenizer(checkpoint.tokenizer, head.spec.max_tokens).vocabulary_size
    vectors: NDArray[np.floating] = np.zeros((size, head.spec.backbone.hidden_size), np.float32)
    if checkpoint.is_static:
        vectors = checkpoint.tensors()[TABLE]
    ids, lengths = np.arange(size, dtype=np.int32), np.ones(size, np.int32)
    return head.weights(TokenVectors(vectors, ids, lengths))


def _manifest(staging: Path, name: str, head: Head, precision: Precision) -> Manifest:
    """The manifest of the files in `staging`, without parity."""
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
        files={path.name: file_record(path) for path in sorted(staging.iterdir())},
        evaluation=spec.scores(precision),
        drop=spec.drop(precision),
    )
