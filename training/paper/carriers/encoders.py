"""BERT and DistilBERT backbones from quantized ONNX graphs and TensorFlow checkpoints."""

import json
import re
from pathlib import Path
from typing import Any

import tokenizers
from safetensors.numpy import save_file
from tokenizers import BertWordPieceTokenizer

from lattemix.build.backbones.checkpoint import CONFIG, SAFETENSORS
from model_store.manifest import TOKENIZER
from training.paper.carriers.quantized import Weights, read_weights
from training.paper.carriers.tensorflow import read_variables

BERT_BASE = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": 768,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "vocab_size": 28996,
}
BERT_TINY = BERT_BASE | {
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 30522,
}
DISTILBERT_BASE = {
    "model_type": "distilbert",
    "activation": "gelu",
    "dim": 768,
    "hidden_dim": 3072,
    "max_position_embeddings": 512,
    "n_heads": 12,
    "n_layers": 6,
    "pad_token_id": 0,
    "vocab_size": 28996,
}

# From the names of Google's BERT to those of Hugging Face.
_RENAMED = [
    (r"/", "."),
    (r"layer_(\d+)", r"layer.\1"),
    (r"_embeddings$", "_embeddings.weight"),
    (r"LayerNorm\.gamma$", "LayerNorm.weight"),
    (r"LayerNorm\.beta$", "LayerNorm.bias"),
    (r"\.kernel$", ".weight"),
]


def convert_quantized(graph: Path, config: dict[str, Any], directory: Path) -> None:
    """Write the encoder of a quantized ONNX graph, with its `tokenizer.json` beside it."""
    prefix = f"{config['model_type']}."
    tokenizer = tokenizers.Tokenizer.from_file(str(graph.with_name(TOKENIZER)))
    tokenizer.no_truncation()
    _write(_without_head(read_weights(graph), prefix), tokenizer, config, directory)


def convert_tensorflow(prefix: Path, config: dict[str, Any], directory: Path) -> None:
    """Write the BERT of a SavedModel's checkpoint, with `vocab.txt` in the model's directory."""
    weights = {}
    for name, value in read_variables(prefix).items():
        renamed = name
        for old, new in _RENAMED:
            renamed = re.sub(old, new, renamed)
        # A Linear's weight is [out, in].
        weights[renamed] = value.T.copy() if name.endswith("/kernel") else value
    vocabulary = prefix.parent.with_name("vocab.txt")
    tokenizer = BertWordPieceTokenizer(str(vocabulary), lowercase=True)
    _write(_without_head(weights, "bert."), tokenizer, config, directory)


def _without_head(weights: Weights, prefix: str) -> Weights:
    """Keep the encoder's weights, without the prefix they have in a model with a task head."""
    return {
        name.removeprefix(prefix): value
        for name, value in weights.items()
        if name.startswith(prefix)
    }


def _write(weights: Weights, tokenizer: Any, config: dict[str, Any], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(directory / TOKENIZER), pretty=False)
    (directory / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    save_file(weights, directory / SAFETENSORS)
