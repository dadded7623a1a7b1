"""A model that costs nothing to compute: what remains is the service itself."""

import shutil

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper

from lattemix.build.graph import Graph
from lattemix.build.network import to_model
from model_store import Artifact, Store
from model_store.manifest import CENTRE, MODEL, TOKENIZER, file_record

_MIXTURES = 64


def publish(source: Artifact, store: Store, name: str, latent_dims: int, classes: int) -> None:
    """Publish `name:fp32`, which looks up one of 64 random mixtures by the sum of the token ids.

    It is served like the transformer that it borrows its tokenizer from, with a queue and a cache.
    """
    mixtures = np.random.default_rng(0).dirichlet(np.ones(classes), (_MIXTURES, latent_dims))
    with store.publish(name, "fp32") as staging:
        model = _look_up(mixtures.astype(np.float32))
        (staging / MODEL).write_bytes(model.SerializeToString())
        np.save(staging / CENTRE, np.sqrt(mixtures).mean(axis=0).astype(np.float32))
        shutil.copyfile(source.tokenizer, staging / TOKENIZER)
        changes = {
            "name": name,
            "precision": "fp32",
            "latent_dims": latent_dims,
            "classes": classes,
            "files": {path.name: file_record(path) for path in sorted(staging.iterdir())},
            "parity": None,
        }
        source.manifest.model_copy(update=changes).write(staging)


def _look_up(mixtures: NDArray[np.float32]) -> onnx.ModelProto:
    graph = Graph()
    axis = graph.constant("axis", np.array([1]))
    count = graph.constant("count", np.array(len(mixtures)))
    row = graph.op("Mod", graph.op("ReduceSum", "input_ids", axis, keepdims=1), count)  # [B, 1]
    mixture = graph.op("Gather", graph.constant("mixtures", mixtures), row)  # [B, 1, L, C]
    pool = helper.make_tensor_value_info("pool", TensorProto.FLOAT, ["B", "G", "S"])
    return to_model(graph, mixture, "mixture", ("B", "G", *mixtures.shape[1:]), [pool])
