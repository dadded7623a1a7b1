"""Token weights in a sentence's mixture: uniform, by inverse frequency, or learned."""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from lattemix.build.backbones import Checkpoint, TokenVectors
from lattemix.build.head import Head, normalise
from lattemix.tokenization import Tokenizer
from model_store import LatteMixError
from training.corpus import Corpus
from training.trainer import linear_warmup_decay
from training.vae import linear_tensors

SIF = 1e-3  # the `a` of a / (a + p(w))

STEPS, SENTENCES, LEARNING_RATE = 300, 192, 0.01
MIN_TOKENS = 6  # in a sentence to be split in halves
TEMPERATURE = 0.1  # of the contrastive loss
WIDTH = 32

Tensors = dict[str, NDArray[Any]]


def id_weights(checkpoint: Checkpoint, sif: Corpus | None, max_tokens: int) -> Tensors:
    """Weights by token id, as a head stores them; empty if all tokens weigh 1.

    With a corpus, `sif` is smooth inverse frequency: a / (a + p) for a token with relative
    frequency p. The backbone's ignored tokens weigh 0.
    """
    weights: dict[int, float] = {}
    if sif is not None:
        counts = _counts(checkpoint, sif, max_tokens)
        shares = counts / counts.sum()
        weights = {int(i): float(SIF / (SIF + shares[i])) for i in np.flatnonzero(counts)}
    weights |= dict.fromkeys(checkpoint.ignored_ids, 0.0)
    if not weights:
        return {}
    ids = sorted(weights)
    return {
        "weighted.ids": np.array(ids, np.int32),
        "weighted.weights": np.array([weights[i] for i in ids], np.float32),
    }


def _counts(checkpoint: Checkpoint, corpus: Corpus, max_tokens: int) -> NDArray[np.int64]:
    """Occurrences of each token in the corpus."""
    tokenizer = Tokenizer(checkpoint.tokenizer, max_tokens)
    counts = np.zeros(tokenizer.vocabulary_size, np.int64)
    for index in range(corpus.shards):
        for text in tokenizer(corpus.shard(index)):
            np.add.at(counts, text.ids, 1)
    return counts


def learned_weights(
    head: Head, checkpoint: Checkpoint, batch: Callable[[int], TokenVectors], seed: int
) -> Tensors:
    """Learn to predict a token's weight from its vector, without labels.

    The paper regards a sentence's tokens as draws from one distribution of meanings. The mixtures
    of two random halves of a sentence should thus be closer to each other than to those of other
    sentences. The weights minimise this contrastive loss (InfoNCE) with the encoder frozen, so that
    words that fit in any sentence get a small weight. `batch` returns the sentences of a step.
    """
    check_learnable(checkpoint)
    torch.manual_seed(seed)
    network = weigher(head.spec.backbone.hidden_size)
    adam = torch.optim.Adam(network.parameters())
    for step in range(STEPS):
        sentences = batch(step)
        sentences = sentences.take(np.flatnonzero(sentences.lengths >= MIN_TOKENS))
        if len(sentences) < 2:
            continue
        for group in adam.param_groups:
            group["lr"] = LEARNING_RATE * linear_warmup_decay(step, STEPS, warmup=0.1)
        loss = _contrastive_loss(head, network, sentences, np.random.default_rng([seed, step]))
        adam.zero_grad()
        loss.backward()
        adam.step()
    return linear_tensors(network, "weigher")


def check_learnable(checkpoint: Checkpoint) -> None:
    """Reject learned token weights on a backbone whose vectors depend on context."""
    if not checkpoint.is_static:
        raise LatteMixError(
            f"token_weighting 'learned' is for static word vectors, and {checkpoint.name} is not: "
            "use 'uniform'."
        )


def weigher(hidden_size: int) -> nn.Sequential:
    """A network from a normalised token vector [H] to the logarithm of its weight [1].

    All weights are equal at first.
    """
    last = nn.Linear(WIDTH, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.Linear(hidden_size, WIDTH), nn.Tanh(), last)


def _contrastive_loss(
    head: Head, network: nn.Sequential, tokens: TokenVectors, rng: np.random.Generator
) -> Tensor:
    """Cross-entropy of finding the other half of each sentence among those of all sentences."""
    vectors = tokens.vectors.astype(np.float32)
    distributions = torch.from_numpy(head.distributions(vectors)).flatten(1)  # [T, L*C]
    inputs = normalise(vectors, head.tensors["mean"], head.spec.normalisation)
    weights = network(torch.from_numpy(inputs)).exp()  # [T, 1]
    half = torch.from_numpy(tokens.sentence_of + len(tokens) * _second_half(tokens, rng))  # [T]

    def summed(values: Tensor) -> Tensor:
        return torch.zeros(2 * len(tokens), values.shape[1]).index_add(0, half, values)

    roots = (summed(weights * distributions) / summed(weights) + 1e-8).sqrt()  # [2N, L*C]
    centred = functional.normalize(roots - roots.mean(dim=0).detach(), dim=-1)
    first, second = centred.chunk(2)
    similarities = first @ second.T / TEMPERATURE  # [N, N]
    target = torch.arange(len(tokens))
    losses = (functional.cross_entropy(each, target) for each in (similarities, similarities.T))
    return torch.stack([*losses]).mean()


def _second_half(tokens: TokenVectors, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Whether each token is in the second of two random halves of its sentence: [T]."""
    sentence = tokens.sentence_of
    order = np.lexsort((rng.random(len(sentence)), sentence))  # shuffled within each sentence
    starts = np.cumsum(tokens.lengths) - tokens.lengths
    rank = np.empty(len(sentence), np.int64)
    rank[order] = np.arange(len(sentence)) - starts[sentence]
    return rank >= tokens.lengths[sentence] // 2
