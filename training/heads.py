"""Train a head on an encoded corpus."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lattemix.build.backbones import BackboneError
from lattemix.build.head import Floats, Head, HeadSpec, normalise, rounded
from model_store import LatteMixError
from training import weighting
from training.backbones import Backbone
from training.checkpoint import TrainingCheckpoint
from training.corpus import Corpus
from training.encoding import Batches, EncodedCorpus
from training.evaluate.scorers import DevScore
from training.evaluate.sets import Pairs
from training.lessons import prepare_lessons
from training.objectives import Elbo, Objective
from training.order import SENTENCES, find_order, permuted
from training.orthogonal import uniform_centre
from training.probes import probes_for
from training.recipe import Recipe
from training.teacher import Teacher
from training.teaching import LinearStudent, Student, Taught
from training.trainer import train
from training.vae import CategoricalVAE, TokenVAE, linear_tensors


def make_head(
    encoded: EncodedCorpus,
    recipe: Recipe,
    about_corpus: str,
    directory: Path | None = None,
    progress: bool = True,
    dev: Pairs | None = None,
    events: Path | None = None,
    teacher: Teacher | None = None,
) -> Head:
    """Train a head.

    Args:
        encoded: the corpus and the backbone.
        recipe: the settings.
        about_corpus: description of the corpus.
        directory: directory of the checkpoint and the log.
        progress: whether to show progress.
        dev: pairs to score the encoder on during training.
        events: directory of TensorBoard events.
        teacher: the teacher of a taught head.
    """
    backbone, corpus, checkpoint = encoded.backbone, encoded.corpus, encoded.backbone.checkpoint
    sample = encoded.sample(recipe)
    if not len(sample.vectors):
        raise BackboneError(f"No word of the corpus is in the vocabulary of {checkpoint.name}.")
    mean = sample.vectors.mean(axis=0, dtype=np.float64).astype(np.float32)
    sif = corpus if recipe.token_weighting == "sif" else None
    fixed = {"mean": mean, **weighting.id_weights(checkpoint, sif, recipe.max_tokens)}
    spec = _spec(backbone, recipe, about_corpus)

    def head_of(vae: TokenVAE) -> Head:
        return Head(spec, {**fixed, **_learned_tensors(vae)})

    steps = recipe.total_steps(corpus.sentences)
    run = TrainingCheckpoint(directory, identity(backbone, corpus, recipe)) if directory else None
    dev_score = DevScore(dev, backbone, encoded.cache, sample) if dev else None
    score = (lambda vae: dev_score(head_of(vae))) if dev_score else None
    objective = _objective(encoded, recipe, mean, teacher, progress)
    vae, figures = train(objective, recipe, steps, run, progress, score, events)
    figures |= {
        "steps": steps,
        "sentences": corpus.sentences,
        "sentences_cut": round(sample.truncated / len(sample), 4),
    }
    if corpus.exclusion_sha256:
        figures["sentences_excluded"] = corpus.excluded
    head = Head(spec.model_copy(update={"training": figures}), head_of(vae).tensors)
    if recipe.token_weighting == "learned" and recipe.objective == "elbo":
        sentences = Batches(corpus, encoded.shard, weighting.SENTENCES, recipe.seed)
        learned = weighting.learned_weights(head, checkpoint, sentences, recipe.seed)
        head = Head(head.spec, {**head.tensors, **learned})
    if recipe.model != "categorical":
        return head
    if "centre" not in head.tensors:
        head = Head(head.spec, {**head.tensors, "centre": head.centre_of(sample)})
    head = permuted(head, find_order(head, encoded.first(SENTENCES)))
    return with_probes(head, backbone)


def untrained_head(backbone: Backbone, recipe: Recipe) -> Head:
    """A head with an orthogonal encoder as initialised, which needs no corpus."""
    needs_corpus = recipe.token_weighting != "uniform" or recipe.normalisation.startswith("centre")
    if needs_corpus or recipe.encoder != "orthogonal":
        raise LatteMixError(
            "A head without a corpus needs encoder 'orthogonal', token_weighting 'uniform' and "
            "normalisation 'equal-norm' or 'none': use `lattemix-train train` for others."
        )
    torch.manual_seed(recipe.seed)
    mean = np.zeros(backbone.hidden_size, np.float32)
    weights = weighting.id_weights(backbone.checkpoint, None, recipe.max_tokens)
    encoder = _learned_tensors(CategoricalVAE(backbone.hidden_size, recipe))
    head = Head(_spec(backbone, recipe, "none"), {"mean": mean, **weights, **encoder})
    return with_probes(head, backbone)


def _objective(
    encoded: EncodedCorpus, recipe: Recipe, mean: Floats, teacher: Teacher | None, progress: bool
) -> Objective[Any]:
    hidden_size = encoded.backbone.hidden_size
    if teacher is not None:
        lessons = prepare_lessons(encoded, recipe, teacher, mean, progress)
        return Taught(lessons, hidden_size, recipe)
    batches = encoded.batches(recipe)

    def tokens(step: int) -> Tensor:
        vectors = batches(step).vectors.astype(np.float32)
        return torch.from_numpy(normalise(vectors, mean, recipe.normalisation))

    return Elbo(tokens, hidden_size, recipe)


def identity(backbone: Backbone, corpus: Corpus, recipe: Recipe) -> dict[str, object]:
    """Everything that must be unchanged for a run to be resumed."""
    exclude = corpus.exclusion_sha256
    return {
        **recipe.model_dump(mode="json"),
        "backbone": backbone.checkpoint.sha256,
        "corpus": corpus.sha256,
        **({"exclude": exclude} if exclude else {}),
    }


def _spec(backbone: Backbone, recipe: Recipe, about_corpus: str) -> HeadSpec:
    return HeadSpec(
        backbone=backbone.checkpoint.origin(backbone.layer, backbone.hidden_size),
        model=recipe.model,
        latent_dims=recipe.latent_dims,
        classes=recipe.classes,
        temperature=recipe.inference_temperature or recipe.temperature,
        max_tokens=recipe.max_tokens,
        normalisation=recipe.normalisation,
        token_weighting=recipe.token_weighting,
        recommended_metric=recipe.metric,
        corpus=about_corpus,
        recipe=recipe.model_dump(mode="json"),
    )


def _learned_tensors(vae: TokenVAE) -> dict[str, Floats]:
    """The learned tensors by their names in a head."""
    layers = linear_tensors(vae.encoder, "encoder")
    tensors = {name: rounded(tensor) for name, tensor in layers.items()}
    if isinstance(vae, Student):
        tensors["centre"] = vae.centre.detach().cpu().numpy().reshape(vae.latent_dims, -1)
    if isinstance(vae, Student | LinearStudent) and vae.weigher is not None:
        tensors |= linear_tensors(vae.weigher, "weigher")
    if isinstance(vae, CategoricalVAE) and vae.is_orthogonal:
        classes = len(tensors["encoder.0.bias"]) // vae.latent_dims
        tensors["centre"] = uniform_centre(vae.latent_dims, classes)
    return tensors


def with_probes(head: Head, backbone: Backbone) -> Head:
    """Add the probe sentences and their mixtures."""
    candidates = probes_for(backbone.checkpoint)
    mixtures = head.mixtures(backbone.encode(candidates, exact=True))  # [P, L, C]
    # A probe without a word in the vocabulary of static vectors has a NaN mixture.
    known = [i for i, mixture in enumerate(mixtures) if np.isfinite(mixture).all()]
    spec = head.spec.model_copy(update={"probes": tuple(candidates[i] for i in known)})
    return Head(spec, {**head.tensors, "probes": mixtures[known]})
