"""From a corpus and a frozen backbone to a head: encode once, train, round, measure."""

from pathlib import Path

import numpy as np
import torch

from model_store.manifest import Backbone
from training import corpus
from training.backbones.sources import Checkpoint
from training.backbones.transformer import Transformer
from training.export import graph
from training.head import CENTRE_SENTENCES, Floats, Head, HeadSpec, normalise, rounded
from training.probes import PROBES
from training.recipe import Recipe
from training.trainer import train
from training.vae import CategoricalVAE


def make_head(checkpoint: Checkpoint, corpus_path: Path, recipe: Recipe, about_corpus: str) -> Head:
    """Train a head for `checkpoint` on the sentences in `corpus_path`."""
    graph.check(checkpoint)
    backbone = Transformer(checkpoint, recipe.max_tokens, recipe.layer)
    sentences = corpus.sample(corpus_path, recipe.max_sentences, recipe.seed)
    vectors = [states.numpy() for states in backbone.token_vectors(sentences, progress=True)]
    tokens = np.concatenate(vectors)  # [T, H]
    mean = tokens.mean(axis=0, dtype=np.float64).astype(np.float32)
    vae, _ = train(torch.from_numpy(normalise(tokens, mean, recipe.normalisation)), recipe)

    spec = HeadSpec(
        backbone=Backbone(
            name=checkpoint.name,
            sha256=checkpoint.sha256,
            architecture=checkpoint.config["model_type"],
            layer=backbone.layer,
            hidden_size=backbone.hidden_size,
        ),
        latent_dims=recipe.latent_dims,
        classes=recipe.classes,
        temperature=recipe.temperature,
        max_tokens=recipe.max_tokens,
        normalisation=recipe.normalisation,
        recommended_metric=recipe.metric,
        corpus=about_corpus,
        recipe=recipe.model_dump(mode="json"),
        probes=PROBES,
    )
    tensors = {"mean": mean, **encoder_tensors(vae)}
    return measured(Head(spec, tensors), backbone, vectors[:CENTRE_SENTENCES])


def encoder_tensors(vae: CategoricalVAE) -> dict[str, Floats]:
    """The encoder's weights and biases under the names a head stores them by."""
    linear = [layer for layer in vae.encoder if isinstance(layer, torch.nn.Linear)]
    parameters = {
        f"encoder.{index}.{kind}": getattr(layer, kind).detach().numpy()
        for index, layer in enumerate(linear)
        for kind in ("weight", "bias")
    }
    return {name: rounded(parameter) for name, parameter in parameters.items()}


def measured(head: Head, backbone: Transformer, sentences: list[Floats]) -> Head:
    """Add what can only be known of a finished encoder: its centre and its probe mixtures."""
    probes = [head.mixture(states.numpy()) for states in backbone.token_vectors(head.spec.probes)]
    tensors = {
        **head.tensors,
        "centre": head.centre_of(sentences),
        "probes": np.stack(probes),
    }
    return Head(head.spec, tensors)
