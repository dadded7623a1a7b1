"""The families of encoders that can be exported, each told in BERT's terms."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from model_store import LatteMixError

Tensors = Mapping[str, NDArray[Any]]
Config = Mapping[str, Any]


class ExportError(LatteMixError):
    """A backbone and a head cannot be made into a graph."""


@dataclass(frozen=True)
class Architecture:
    """A transformer encoder: its dimensions, and its weights under the names BERT gives them."""

    width: int
    inner_width: int
    layers: int
    heads: int
    epsilon: float
    weights: Tensors
    # RoBERTa's kind counts positions from this id, over tokens that are not it; BERT's from zero.
    padding_id: int | None = None
    # MPNet's kind adds to the attention a bias by how far apart two tokens are: [buckets, heads].
    distance_bias: NDArray[np.float32] | None = None

    def get(self, name: str, *shape: int) -> NDArray[np.float32]:
        """A weight, of the shape that the config promises; -1 is any."""
        tensor = self.weights[name].astype(np.float32)
        if tensor.ndim != len(shape) or any(
            wanted not in (-1, found) for wanted, found in zip(shape, tensor.shape, strict=True)
        ):
            raise ExportError(
                f"{name} has shape {tensor.shape}, but by its config.json it should have {shape}: "
                "they are not of one model."
            )
        return tensor


def _bert(config: Config, weights: Tensors) -> Architecture:
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ExportError("Only absolute position embeddings can be exported yet.")
    return _like_bert(config, _renamed(weights, "bert.", {}))


def _roberta(config: Config, weights: Tensors) -> Architecture:
    return _like_bert(config, _renamed(weights, "roberta.", {}), padding_id=config["pad_token_id"])


def _distilbert(config: Config, weights: Tensors) -> Architecture:
    names = {
        "transformer.": "encoder.",
        ".attention.q_lin.": ".attention.self.query.",
        ".attention.k_lin.": ".attention.self.key.",
        ".attention.v_lin.": ".attention.self.value.",
        ".attention.out_lin.": ".attention.output.dense.",
        ".sa_layer_norm.": ".attention.output.LayerNorm.",
        ".ffn.lin1.": ".intermediate.dense.",
        ".ffn.lin2.": ".output.dense.",
        ".output_layer_norm.": ".output.LayerNorm.",
    }
    config = {
        "hidden_size": config["dim"],
        "intermediate_size": config["hidden_dim"],
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": config["n_heads"],
        "hidden_act": config["activation"],
        "layer_norm_eps": 1e-12,  # fixed in the family
    }
    return _like_bert(config, _renamed(weights, "distilbert.", names))


def _mpnet(config: Config, weights: Tensors) -> Architecture:
    names = {
        ".attention.attn.q.": ".attention.self.query.",
        ".attention.attn.k.": ".attention.self.key.",
        ".attention.attn.v.": ".attention.self.value.",
        ".attention.attn.o.": ".attention.output.dense.",
        ".attention.LayerNorm.": ".attention.output.LayerNorm.",
    }
    renamed = _renamed(weights, "mpnet.", names)
    bias = renamed["encoder.relative_attention_bias.weight"].astype(np.float32)
    return _like_bert(config, renamed, padding_id=config["pad_token_id"], distance_bias=bias)


# By the `model_type` of config.json.
FAMILIES: dict[str, Callable[[Config, Tensors], Architecture]] = {
    "bert": _bert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "camembert": _roberta,
    "distilbert": _distilbert,
    "mpnet": _mpnet,
}


def _like_bert(config: Config, weights: Tensors, **more: Any) -> Architecture:
    activation = config.get("hidden_act")
    if activation != "gelu":
        raise ExportError(f"Activation {activation!r} cannot be exported yet: gelu can.")
    width, heads = config["hidden_size"], config["num_attention_heads"]
    if width % heads:
        raise ExportError(
            f"In its config.json, {width} values cannot be shared among {heads} heads."
        )
    return Architecture(
        width=width,
        inner_width=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        epsilon=config["layer_norm_eps"],
        weights=weights,
        **more,
    )


def _renamed(weights: Tensors, prefix: str, names: Mapping[str, str]) -> Tensors:
    """Under BERT's names. Checkpoints with a task head have a prefix; the oldest, old norms."""
    old = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}

    def modern(name: str) -> str:
        name = name.removeprefix(prefix)
        for theirs, ours in {**names, **old}.items():
            name = name.replace(theirs, ours)
        return name

    return {modern(name): tensor for name, tensor in weights.items()}


def distance_bias(table: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """What MPNet adds to the attention of each token [size] to each [size]: [heads, size, size].

    Distances have a bucket each while they are short, share buckets that grow with the logarithm,
    and share the last from 128 on; half of the buckets are for what stands before.
    """
    half = len(table) // 2
    exact, longest = half // 2, 128
    away = np.arange(size)[None, :] - np.arange(size)[:, None]  # [size, size]
    distance = np.abs(away)
    # In float32, as torch computes it: a distance on a border must fall on the same side.
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
    grown = ratio / np.float32(math.log(longest / exact)) * np.float32(half - exact)
    far = np.minimum(exact + grown.astype(np.int64), half - 1)
    buckets = np.where(distance < exact, distance, far) + np.where(away > 0, half, 0)
    return np.ascontiguousarray(table[buckets].transpose(2, 0, 1))
