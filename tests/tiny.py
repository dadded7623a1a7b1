"""Tiny models made with numpy: a random BERT, random word vectors, and a random head for each.

Tests of serving and of the graph builder need no torch this way: the BERT has a reference forward
pass, which tests/training compares with transformers.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import models, normalizers, pre_tokenizers, processors

from lattemix.build.backbones import Checkpoint, TokenVectors, words
from lattemix.build.backbones.words import TABLE
from lattemix.build.head import Floats, Head, HeadSpec, rounded
from lattemix.tokenization import Tokenizer
from model_store import latents
from model_store.latents import LatentClass, Latents
from training.recipe import Recipe

SENTENCES = [
    "a man is eating",
    "someone is having lunch",
    "the dog runs in the park",
    "a dog is running outside",
    "two women are talking",
    "the market fell on tuesday",
    "prices dropped this week",
    "a child plays with a red ball",
    "the sea was calm and blue",
    "nobody likes cold coffee",
]
WORDS = sorted({word for sentence in SENTENCES for word in sentence.split()})
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
PROBES = (*SENTENCES, "a", "!?…", "Привет, мир", "the " * 16, "the dog likes the sea " * 60)

RECIPE = Recipe(latent_dims=4, classes=5, steps=30, batch_sentences=2, max_tokens=16)
CONFIG = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": len(VOCABULARY),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
}
WIDTH, INNER_WIDTH, LAYERS, HEADS = 16, 32, 2, 4


def write_backbone(directory: Path) -> None:
    """Write a random BERT and its tokenizer of whole words."""
    (directory / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    # transformers requires the format.
    save_file(bert_weights(), directory / "model.safetensors", metadata={"format": "pt"})
    vocabulary = {word: i for i, word in enumerate(VOCABULARY)}
    tokenizer = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.save(str(directory / "tokenizer.json"))


def bert_weights() -> dict[str, Floats]:
    """Random weights under the names that transformers gives them."""
    rng = np.random.default_rng(7)
    weights: dict[str, Floats] = {}

    def add(name: str, *shape: int, mean: float = 0) -> None:
        weights[name] = rng.normal(mean, 0.2, shape).astype(np.float32)

    def add_linear(name: str, inputs: int, outputs: int) -> None:
        add(f"{name}.weight", outputs, inputs)
        add(f"{name}.bias", outputs)

    def add_norm(name: str) -> None:
        add(f"{name}.weight", WIDTH, mean=1)
        add(f"{name}.bias", WIDTH)

    for kind, size in (("word", len(VOCABULARY)), ("position", 32), ("token_type", 2)):
        add(f"embeddings.{kind}_embeddings.weight", size, WIDTH)
    add_norm("embeddings.LayerNorm")
    for layer in (f"encoder.layer.{index}" for index in range(LAYERS)):
        for name in ("self.query", "self.key", "self.value", "output.dense"):
            add_linear(f"{layer}.attention.{name}", WIDTH, WIDTH)
        add_norm(f"{layer}.attention.output.LayerNorm")
        add_linear(f"{layer}.intermediate.dense", WIDTH, INNER_WIDTH)
        add_linear(f"{layer}.output.dense", INNER_WIDTH, WIDTH)
        add_norm(f"{layer}.output.LayerNorm")
    return weights


def token_vectors(checkpoint: Checkpoint, sentences: Sequence[str]) -> TokenVectors:
    """The last hidden states of the tiny BERT, computed by numpy in float64."""
    weights = checkpoint.tensors()
    tokens = Tokenizer(checkpoint.tokenizer, RECIPE.max_tokens)(sentences)
    vectors = [_bert(weights, text.ids).astype(np.float32) for text in tokens]
    return TokenVectors(
        np.concatenate(vectors),
        np.concatenate([np.array(text.ids, np.int32) for text in tokens]),
        np.array([len(text.ids) for text in tokens], np.int32),
    )


def _bert(weights: Mapping[str, NDArray[Any]], ids: Sequence[int]) -> NDArray[np.float64]:
    """The last hidden state of one text: [S] -> [S, H]."""

    def linear(x: NDArray[Any], name: str) -> NDArray[Any]:
        return x @ weights[f"{name}.weight"].T.astype(np.float64) + weights[f"{name}.bias"]

    def norm(x: NDArray[Any], name: str) -> NDArray[Any]:
        scaled = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    def split(x: NDArray[Any]) -> NDArray[Any]:
        return x.reshape(len(x), HEADS, -1).transpose(1, 0, 2)  # [heads, S, H / heads]

    def gelu(x: NDArray[Any]) -> NDArray[Any]:
        return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))

    word, position, token_type = (
        weights[f"embeddings.{kind}_embeddings.weight"].astype(np.float64)
        for kind in ("word", "position", "token_type")
    )
    x = norm(word[list(ids)] + position[: len(ids)] + token_type[0], "embeddings.LayerNorm")
    for layer in (f"encoder.layer.{index}" for index in range(LAYERS)):
        query, key, value = (
            split(linear(x, f"{layer}.attention.self.{name}")) for name in ("query", "key", "value")
        )
        odds = np.exp(query @ key.transpose(0, 2, 1) / math.sqrt(WIDTH / HEADS))  # [heads, S, S]
        context = (odds / odds.sum(-1, keepdims=True)) @ value
        joined = context.transpose(1, 0, 2).reshape(len(ids), WIDTH)
        attended = linear(joined, f"{layer}.attention.output.dense")
        x = norm(x + attended, f"{layer}.attention.output.LayerNorm")
        inner = gelu(linear(x, f"{layer}.intermediate.dense"))
        x = norm(x + linear(inner, f"{layer}.output.dense"), f"{layer}.output.LayerNorm")
    return x


def random_head(
    checkpoint: Checkpoint,
    encode: Callable[[Sequence[str]], TokenVectors],
    layer: int,
    depth: int = 1,
    tensors: Mapping[str, NDArray[Any]] | None = None,
    probes: Sequence[str] = SENTENCES,
    **fields: Any,
) -> Head:
    """Return a random head for a layer of a backbone.

    Args:
        checkpoint: the backbone.
        encode: returns the token vectors that the recorded mixtures are computed from.
        layer: the layer that the head reads.
        depth: the number of layers of its encoder.
        tensors: additional tensors.
        probes: sentences with recorded mixtures.
        fields: fields of `HeadSpec` that differ from the defaults below.
    """
    rng = np.random.default_rng(0)
    sample = encode(probes)
    width = sample.vectors.shape[1]
    spec = HeadSpec.model_validate(
        {
            "backbone": checkpoint.origin(layer, width),
            "latent_dims": RECIPE.latent_dims,
            "classes": RECIPE.classes,
            "temperature": 0.3,
            "max_tokens": 16,
            "normalisation": "centre-equal-norm",
            "recommended_metric": "cosine",
            "corpus": "none",
            "recipe": {},
            "probes": tuple(probes),
            **fields,
        }
    )
    weights: dict[str, NDArray[Any]] = {"mean": sample.vectors.mean(axis=0), **(tensors or {})}
    for index, size in enumerate([width] * (depth - 1) + [RECIPE.latent_dims * RECIPE.classes]):
        for name, shape in (("weight", (size, width)), ("bias", (size,))):
            values = rng.normal(0, 0.2, shape).astype(np.float32)
            weights[f"encoder.{index}.{name}"] = rounded(values)
    head = Head(spec, weights)
    recorded = {"centre": head.centre_of(sample), "probes": head.mixtures(sample)}
    return Head(spec, {**weights, **recorded})


def write_head(checkpoint: Checkpoint, directory: Path) -> None:
    """Write a random head for the last layer, and the words of its latent classes."""
    head = random_head(
        checkpoint,
        lambda texts: token_vectors(checkpoint, texts),
        LAYERS,
        probes=PROBES,
        recommended_metric=RECIPE.metric,
        corpus="ten sentences written for the tests",
        recipe=RECIPE.model_dump(mode="json"),
        training={"steps": 30, "sentences": len(SENTENCES)},
    )
    head.save(directory)
    digest = str(Head.load(directory).spec.sha256)
    latents.write(_latents(head, token_vectors(checkpoint, SENTENCES)), digest, directory)


def write_static(backbone: Path, head_directory: Path) -> None:
    """Write random word vectors, and a random head for them with a random weight per word."""
    rng = np.random.default_rng(5)
    words.save(WORDS, rng.normal(size=(len(WORDS), WIDTH)).astype(np.float32), backbone)
    checkpoint = Checkpoint.read(backbone)
    weights = rng.uniform(0.1, 2, len(WORDS) + 1).astype(np.float32)
    weights[-1] = 0  # unknown words

    def look_up(sentences: Sequence[str]) -> TokenVectors:
        rows = Tokenizer(checkpoint.tokenizer, None).ids(sentences)
        ids = np.concatenate([np.array(row, np.int32) for row in rows])
        lengths = np.array([len(row) for row in rows], np.int32)
        return TokenVectors(checkpoint.tensors()[TABLE][ids], ids, lengths)

    tensors = {"weighted.ids": np.arange(len(weights), dtype=np.int32), "weighted.weights": weights}
    head = random_head(checkpoint, look_up, 0, tensors=tensors, token_weighting="sif")
    head.save(head_directory)


def _latents(head: Head, sample: TokenVectors) -> Latents:
    """The three words that are most in each class of each latent dim."""
    distributions = head.distributions(sample.vectors.astype(np.float32))  # [T, L, C]
    shares = {
        VOCABULARY[token]: distributions[sample.ids == token].mean(axis=0)
        for token in np.unique(sample.ids)
        if token > VOCABULARY.index("[SEP]")
    }

    def latent_class(dim: int, index: int) -> LatentClass:
        words = sorted(shares, key=lambda word: -shares[word][dim, index])[:3]
        return LatentClass(
            usage=round(float(distributions[:, dim, index].mean()), 4),
            words={word: round(float(shares[word][dim, index]), 2) for word in words},
        )

    return [
        [latent_class(dim, index) for index in range(head.spec.classes)]
        for dim in range(head.spec.latent_dims)
    ]
