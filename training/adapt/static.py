"""Learn through the mixtures themselves, on static backbones.

A batch of sentences has few distinct tokens, whose distributions do not depend on context, so that
the exact similarity is affordable. It is far from the first-order form of `training.adapt.learning`
for encoders that were taught.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from lattemix.build.backbones import TokenVectors
from lattemix.build.head import Floats, Head, normalise
from training.adapt.examples import Examples, Index
from training.adapt.learning import TOKEN_STRENGTH, Change, bounded_exp, initial_scale, label_loss
from training.trainer import linear_warmup_decay

_STEPS, _BATCH = 50, 128  # examples per batch
_RATES = (3e-3, 15e-3, 2e-2)  # of the matrix, the token weights, and slope and offset
_WARMUP = 0.05
_TINY = 1e-9


class Table:
    """The distinct tokens of sentences on a static backbone."""

    def __init__(self, head: Head, tokens: TokenVectors) -> None:
        self.ids, first, slots = np.unique(tokens.ids, return_index=True, return_inverse=True)
        raw = tokens.vectors[first].astype(np.float32)
        one = TokenVectors(raw, self.ids, np.array([len(self.ids)], np.int32))
        vectors = normalise(raw, head.tensors["mean"], head.spec.normalisation)
        self.vectors = torch.from_numpy(vectors)  # [U, H]
        self.weights = torch.from_numpy(head.weights(one))  # [U]
        self._slots = np.split(slots, np.cumsum(tokens.lengths)[:-1])

    def counts(self, sentences: Index) -> tuple[Index, Tensor]:
        """Distinct tokens [U] of some sentences, and their occurrences in each: [N, U]."""
        parts = [self._slots[sentence] for sentence in sentences]
        owners = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        used, columns = np.unique(np.concatenate(parts), return_inverse=True)
        shape = len(parts), len(used)
        cells = np.ravel_multi_index((owners, columns), shape)
        counts = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)
        return used, torch.from_numpy(counts.astype(np.float32))


class StaticLearner:
    """Learns the matrix and the token weights together, by Adam on batches of examples."""

    def __init__(self, head: Head, examples: Examples, tokens: TokenVectors, seed: int) -> None:
        self._head, self._examples, self._seed = head, examples, seed
        self._table = Table(head, tokens)
        layers = head.encoder
        self._layers = [(torch.from_numpy(w), torch.from_numpy(b)) for w, b in layers]
        self._centre = torch.from_numpy(head.tensors["centre"]).flatten()  # [L*C]

    def learn(self, indices: Index, strength: float) -> Change:
        """The change learned from some of the examples."""
        size = self._table.vectors.shape[1]
        change = torch.zeros(size, size, requires_grad=True)
        logs = torch.zeros(len(self._table.ids), requires_grad=True)
        scale = initial_scale()
        adam = torch.optim.Adam([{"params": [each]} for each in (change, logs, scale)])
        rng = np.random.default_rng(self._seed)
        for step in range(_STEPS):
            for group, rate in zip(adam.param_groups, _RATES, strict=True):
                group["lr"] = rate * linear_warmup_decay(step, _STEPS, _WARMUP)
            batch = indices[rng.permutation(len(indices))[:_BATCH]]
            targets = torch.from_numpy(self._examples.targets[batch]).float()
            penalty = change.square().sum() + TOKEN_STRENGTH * logs.square().sum()
            loss = label_loss(self._similarities(batch, change, logs), scale, targets)
            loss = loss + strength * penalty / len(indices)
            adam.zero_grad()
            loss.backward()
            adam.step()
        matrix: Floats = (torch.eye(size) + change.detach()).numpy()
        return Change(matrix, tokens=(self._table.ids, bounded_exp(logs.detach()).numpy()))

    def _similarities(self, batch: Index, change: Tensor, logs: Tensor) -> list[Tensor]:
        """`centred` of the first sentence of each example and the others: [N] each."""
        sentences, rows = np.unique(self._examples.rows[batch], return_inverse=True)
        used, counts = self._table.counts(sentences)
        shares = counts * (self._table.weights * bounded_exp(logs))[used]
        mixtures = shares @ self._distributions(self._table.vectors[used], change)
        mixtures = mixtures / shares.sum(dim=1, keepdim=True).clamp(min=_TINY)
        roots = (mixtures + _TINY).sqrt() - self._centre
        units = functional.normalize(roots, dim=-1)  # [S, L*C]
        first, *others = (
            units[column] for column in torch.from_numpy(rows.reshape(len(batch), -1)).T
        )
        return [(first * other).sum(dim=-1) for other in others]

    def _distributions(self, vectors: Tensor, change: Tensor) -> Tensor:
        """Token distributions of the changed head: [U, H] -> [U, L*C]."""
        hidden = vectors + vectors @ change.T
        *inner, (weight, bias) = self._layers
        for inner_weight, inner_bias in inner:
            hidden = (hidden @ inner_weight.T + inner_bias).relu()
        logits = (hidden @ weight.T + bias).unflatten(1, (self._head.spec.latent_dims, -1))
        return (logits / self._head.spec.temperature).softmax(dim=-1).flatten(1)
