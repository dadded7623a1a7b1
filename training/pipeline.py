"""From a corpus and a frozen backbone to a head: encode once, train, round, measure."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lattemix.build.backbones import BackboneError, TokenVectors
from lattemix.build.head import STATISTICS_SENTENCES, Floats, Head, HeadSpec, normalise, rounded
from model_store.manifest import BackboneOrigin
from training import weighting
from training.backbones import Advance, Backbone
from training.batches import Batches
from training.cache import VectorCache
from training.checkpoint import Run
from training.corpus import SHARD_SENTENCES, Corpus
from training.device import Workers
from training.evaluate.scorers import DevScore
from training.evaluate.sets import Pairs
from training.probes import probes_for
from training.progress import progress_bar
from training.recipe import Recipe
from training.trainer import train
from training.vae import TokenVAE
from training.weighting import Tensors, id_weights, learned_weights


class Encoded:
    """A corpus as a backbone sees it, a shard at a time, through the cache."""

    def __init__(self, backbone: Backbone, corpus: Corpus, cache: VectorCache) -> None:
        self.backbone, self.corpus, self.cache = backbone, corpus, cache

    def shard(self, index: int, advance: Advance | None = None) -> TokenVectors:
        """The token vectors of one shard; words unknown to the backbone are left out."""
        encoded = self.cache.encode(self.backbone, self.corpus.shard(index), advance)
        return encoded.without(self.backbone.checkpoint.unknown_id)

    def sample(self, recipe: Recipe) -> TokenVectors:
        """Enough for statistics, of what a run reads first."""
        shards = self.needed(recipe)[: STATISTICS_SENTENCES // SHARD_SENTENCES]
        return TokenVectors.join([self.shard(index) for index in shards])

    def needed(self, recipe: Recipe) -> list[int]:
        """The shards that a run reads, in the order of its first pass."""
        return self.batches(recipe).shards(recipe.total_steps(self.corpus.sentences))

    def batches(self, recipe: Recipe) -> Batches:
        """What each step of a run sees."""
        return Batches(self.corpus, self.shard, recipe.batch_sentences, recipe.seed)

    def ahead(self, recipe: Recipe, workers: Workers, progress: bool = True) -> None:
        """Encode what a run will need, sharing the work, if the cache can hold it all."""
        needed = self.needed(recipe)
        mine = needed[workers.rank :: workers.count]
        sentences = sum(map(self.corpus.shard_size, mine))
        bar = progress_bar("Encoding", "sentences", total=sentences, shown=progress)
        for done, index in enumerate(mine):
            size = self.shard(index, bar.update).vectors.nbytes
            if done == 0 and size * len(needed) > self.cache.limit:
                break  # what is encoded now would be gone when it is needed
        bar.close()
        workers.wait()


def make_head(
    encoded: Encoded,
    recipe: Recipe,
    about_corpus: str,
    directory: Path | None = None,
    progress: bool = True,
    dev: Pairs | None = None,
    events: Path | None = None,
) -> Head:
    """Train a head.

    Args:
        encoded: the corpus, and the backbone that reads it.
        recipe: the settings.
        about_corpus: the corpus in words, with its licence.
        directory: where checkpoints and the log go; nowhere if unset.
        progress: whether to show progress.
        dev: pairs to score the encoder on now and then; none if unset.
        events: where TensorBoard's events go; nowhere if unset.
    """
    backbone, corpus = encoded.backbone, encoded.corpus
    sample, batches = encoded.sample(recipe), encoded.batches(recipe)
    if not len(sample.vectors):
        raise BackboneError(f"{backbone.checkpoint.name} knows no word of the corpus's sentences.")
    mean = sample.vectors.mean(axis=0, dtype=np.float64).astype(np.float32)

    def batch(step: int) -> Tensor:
        vectors = batches(step).vectors.astype(np.float32)
        return torch.from_numpy(normalise(vectors, mean, recipe.normalisation))

    spec = _spec(backbone, recipe, about_corpus)
    fixed = {"mean": mean, **_id_weights(encoded, recipe)}

    def head_of(vae: TokenVAE) -> Head:
        return Head(spec, {**fixed, **encoder_tensors(vae)})

    steps = recipe.total_steps(corpus.sentences)
    run = Run(directory, identity(backbone, corpus, recipe)) if directory else None
    score = DevScore(dev, backbone, encoded.cache, sample) if dev else None
    watched = (lambda vae: score(head_of(vae))) if score else None
    vae, figures = train(batch, backbone.hidden_size, recipe, steps, run, progress, watched, events)
    figures |= {
        "steps": steps,
        "sentences": corpus.sentences,
        "sentences_cut": round(sample.truncated / len(sample), 4),
    }
    head = Head(spec.model_copy(update={"training": figures}), head_of(vae).tensors)
    if recipe.token_weighting == "learned":
        halves = Batches(corpus, encoded.shard, weighting.SENTENCES, recipe.seed)
        learned = learned_weights(head, backbone.checkpoint, halves, recipe.seed)
        head = Head(head.spec, {**head.tensors, **learned})
    return measured(head, backbone, sample) if recipe.model == "categorical" else head


def _id_weights(encoded: Encoded, recipe: Recipe) -> Tensors:
    sif = recipe.token_weighting == "sif"
    return id_weights(encoded.backbone.checkpoint, encoded.corpus, sif, recipe.max_tokens)


def identity(backbone: Backbone, corpus: Corpus, recipe: Recipe) -> dict[str, object]:
    """What must be the same for a run to be continued."""
    return {
        **recipe.model_dump(mode="json"),
        "backbone": backbone.checkpoint.sha256,
        "corpus": corpus.sha256,
    }


def _spec(backbone: Backbone, recipe: Recipe, about_corpus: str) -> HeadSpec:
    checkpoint = backbone.checkpoint
    return HeadSpec(
        backbone=BackboneOrigin(
            name=checkpoint.name,
            sha256=checkpoint.sha256,
            architecture=checkpoint.config["model_type"],
            layer=backbone.layer,
            hidden_size=backbone.hidden_size,
        ),
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


def encoder_tensors(vae: TokenVAE) -> dict[str, Floats]:
    """The encoder's weights and biases under the names a head stores them by."""
    linear = [layer for layer in vae.encoder if isinstance(layer, torch.nn.Linear)]
    parameters = {
        f"encoder.{index}.{kind}": getattr(layer, kind).detach().cpu().numpy()
        for index, layer in enumerate(linear)
        for kind in ("weight", "bias")
    }
    return {name: rounded(parameter) for name, parameter in parameters.items()}


def measured(head: Head, backbone: Backbone, sample: TokenVectors) -> Head:
    """Add what can only be known of a finished encoder: its centre and its probe mixtures."""
    candidates = probes_for(backbone.checkpoint)
    probes = head.mixtures(backbone.encode(candidates, exact=True))  # [P, L, C]
    known = [i for i, probe in enumerate(probes) if np.isfinite(probe).all()]  # if static, not all
    spec = head.spec.model_copy(update={"probes": tuple(candidates[i] for i in known)})
    tensors = {**head.tensors, "centre": head.centre_of(sample), "probes": probes[known]}
    return Head(spec, tensors)
