"""The transformer families that can be exported, each described in BERT's terms."""

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
    """A backbone and a head cannot be exported."""


@dataclass(frozen=True)
class Architecture:
    """A transformer encoder: dimensions, and weights under BERT's names."""

    width: int
    inner_width: int
    layers: int
    heads: int
    epsilon: float
    weights: Tensors
    # RoBERTa and its relatives count positions from this id + 1, skipping padding; BERT from 0.
    padding_id: int | None = None
    # MPNet biases the attention by the distance between two tokens: [buckets, heads].
    position_bias: NDArray[np.float32] | None = None

    def weight(self, name: str, *shape: int) -> NDArray[np.float32]:
        """Return a weight; raise ExportError unless it has this shape (-1 is any size)."""
        tensor = self.weights[name].astype(np.float32)
        if tensor.ndim != len(shape) or any(
            expected not in (-1, size) for expected, size in zip(shape, tensor.shape, strict=True)
        ):
            raise ExportError(
                f"{name} has shape {tensor.shape}, but config.json implies {shape}: they belong to "
                "different models."
            )
        return tensor


def _bert(config: Config, weights: Tensors) -> Architecture:
    if config.get("position_embedding_type", "absolute") != "absolute":
        raise ExportError("Only absolute position embeddings can be exported.")
    return _architecture(config, _renamed(weights, "bert.", {}))


def _roberta(config: Config, weights: Tensors) -> Architecture:
    return _architecture(
        config, _renamed(weights, "roberta.", {}), padding_id=config["pad_token_id"]
    )


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
        "layer_norm_eps": 1e-12,  # not in its config
    }
    return _architecture(config, _renamed(weights, "distilbert.", names))


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
    return _architecture(config, renamed, padding_id=config["pad_token_id"], position_bias=bias)


# By the `model_type` of config.json.
FAMILIES: dict[str, Callable[[Config, Tensors], Architecture]] = {
    "bert": _bert,
    "roberta": _roberta,
    "xlm-roberta": _roberta,
    "camembert": _roberta,
    "distilbert": _distilbert,
    "mpnet": _mpnet,
}


def _architecture(config: Config, weights: Tensors, **options: Any) -> Architecture:
    activation = config.get("hidden_act")
    if activation != "gelu":
        raise ExportError(f"Activation {activation!r} cannot be exported: only gelu can.")
    width, heads = config["hidden_size"], config["num_attention_heads"]
    if width % heads:
        raise ExportError(
            f"config.json has hidden size {width}, which is not a multiple of its {heads} heads."
        )
    return Architecture(
        width=width,
        inner_width=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        epsilon=config["layer_norm_eps"],
        weights=weights,
        **options,
    )


def _renamed(weights: Tensors, prefix: str, names: Mapping[str, str]) -> Tensors:
    """Rename weights to BERT's names, without the prefix that a checkpoint with a task head has."""
    # The last two are LayerNorm's names in the oldest checkpoints.
    names = {**names, "LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}

    def rename(name: str) -> str:
        name = name.removeprefix(prefix)
        for old, new in names.items():
            name = name.replace(old, new)
        return name

    return {rename(name): tensor for name, tensor in weights.items()}


def relative_position_bias(table: NDArray[np.float32], size: int) -> NDArray[np.float32]:
    """Return MPNet's attention bias, [heads, size, size], from its table [buckets, heads].

    Half of the buckets are for tokens before, half for tokens after. Short distances have a bucket
    each, longer ones share buckets of logarithmic width, and from 128 on they share the last.
    """
    half = len(table) // 2
    exact, longest = half // 2, 128
    offset = np.arange(size)[None, :] - np.arange(size)[:, None]  # [size, size]
    distance = np.abs(offset)
    # In float32, as in torch: a distance on a bucket's border must fall on the same side.
    ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
    logarithmic = ratio / np.float32(math.log(longest / exact)) * np.float32(half - exact)
    shared = np.minimum(exact + logarithmic.astype(np.int64), half - 1)
    buckets = np.where(distance < exact, distance, shared) + np.where(offset > 0, half, 0)
    return np.ascontiguousarray(table[buckets].transpose(2, 0, 1))
