"""Learn how to change a head from labelled examples, in seconds.

The similarity `centred` of a head with small logits is the cosine of the mean token vectors as its
encoder maps them (see `training.orthogonal`). The matrix and the token weights are learned on this
first-order form, which needs one vector per sentence, and applied to the head, whose own mixtures
then decide whether it got better (`training.adapt.selection`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from lattemix.build.backbones import TokenVectors
from lattemix.build.head import Floats, Head, normalise, rounded
from model_store import Metric
from training.adapt.examples import Examples, Index

TOKEN_STRENGTH = 0.1  # of the penalty on token weights, as a share of the matrix's
CHUNK = 1024  # sentences whose float32 token vectors are in memory at once

_SLOPE, _OFFSET = 10.0, -5.0  # of the predicted label at first, sigmoid(slope * cosine + offset)
_MATRIX_STEPS, _DIM_STEPS, _TOKEN_STEPS = 50, 30, 15  # of L-BFGS
_TOKEN_EXAMPLES = 4000  # used to learn token weights
_BOUND = 6.0  # of logarithms
_TINY = 1e-9

Ids = NDArray[np.int32]


@dataclass(frozen=True)
class Change:
    """A change of a head.

    Attributes:
        matrix: maps normalised token vectors before the encoder, [H, H].
        dim_weights: weights of the latent dims in the similarity, [L].
        tokens: ids of tokens with another weight, and the factors of their weights.
    """

    matrix: Floats | None = None
    dim_weights: Floats | None = None
    tokens: tuple[Ids, Floats] | None = None

    def apply(self, head: Head, known: TokenVectors) -> Head:
        """Return the changed head; `known` has a vector of every token whose weight changes."""
        tensors = dict(head.tensors)
        if self.matrix is not None:
            tensors["encoder.0.weight"] = rounded(tensors["encoder.0.weight"] @ self.matrix)
        if self.dim_weights is not None:
            scales = np.sqrt(self.dim_weights)[:, None]  # [L, 1]
            last = f"encoder.{len(head.encoder) - 1}"
            for name in (f"{last}.weight", f"{last}.bias"):
                by_dim = tensors[name].reshape(len(scales), -1)
                tensors[name] = rounded(by_dim * scales).reshape(tensors[name].shape)
            # A dim without weight is uniform, so its centre must be, too.
            uniform = np.float32(head.spec.classes**-0.5)
            tensors["centre"] = uniform + scales * (tensors["centre"] - uniform)
        if self.tokens is not None:
            tensors |= _token_weights(head, known, *self.tokens)
        metric: Metric = "centred"  # what is learned
        return Head(head.spec.model_copy(update={"recommended_metric": metric}), tensors)


def _token_weights(head: Head, known: TokenVectors, ids: Ids, factors: Floats) -> dict[str, Floats]:
    """The weights by token id, with those of `ids` multiplied."""
    present, first = np.unique(known.ids, return_index=True)
    rows = first[np.searchsorted(present, ids)]
    one = TokenVectors(known.vectors[rows], known.ids[rows], np.array([len(rows)], np.int32))
    weights: dict[int, float] = {}
    if "weighted.ids" in head.tensors:
        stored = head.tensors["weighted.ids"], head.tensors["weighted.weights"]
        weights |= dict(zip(stored[0].tolist(), stored[1].tolist(), strict=True))
    weights |= dict(zip(ids.tolist(), (head.weights(one) * factors).tolist(), strict=True))
    order = sorted(weights)
    return {
        "weighted.ids": np.array(order, np.int32),
        "weighted.weights": np.array([weights[i] for i in order], np.float32),
    }


class Learner:
    """Learns changes of a head from the token vectors of the examples' sentences."""

    def __init__(self, head: Head, examples: Examples, tokens: TokenVectors) -> None:
        """Prepare; `tokens` are those of `examples.sentences`."""
        self.head, self.examples, self.tokens = head, examples, tokens
        self.means = torch.from_numpy(_means(head, tokens))  # [S, H]
        self._dim_features: tuple[Tensor, Tensor] | None = None

    def dims(self, indices: Index, strength: float) -> Change:
        """Weights of the latent dims, from some of the examples."""
        dots, norms = self._features()
        rows = torch.from_numpy(self.examples.rows[indices])
        logs = torch.zeros(dots.shape[1], requires_grad=True)
        columns = self._columns(indices)

        def similarities() -> list[Tensor]:
            weights = bounded_exp(logs)
            lengths = (norms @ weights).clamp(min=_TINY).sqrt()  # [S]
            return [
                dots[column] @ weights / (lengths[rows[:, 0]] * lengths[rows[:, side]])
                for side, column in enumerate(columns, 1)
            ]

        self._fit([logs], similarities, indices, lambda: strength * logs.square().sum(), _DIM_STEPS)
        weights = bounded_exp(logs.detach())
        return Change(dim_weights=(weights / weights.mean()).numpy())

    def matrix(
        self,
        indices: Index,
        strength: float,
        start: Floats | None = None,
        means: Tensor | None = None,
    ) -> Change:
        """A matrix near the identity, from some of the examples; `start` saves steps."""
        means = self.means if means is None else means
        used, rows = np.unique(self.examples.rows[indices], return_inverse=True)
        vectors, columns = means[used], torch.from_numpy(rows.reshape(len(indices), -1)).T
        # The best change maps the span of the sentences to itself: few labels need few numbers.
        few = len(vectors) < vectors.shape[1]
        basis = torch.linalg.qr(vectors.T)[0] if few else torch.eye(vectors.shape[1])  # [H, R]
        coordinates = vectors @ basis  # [S, R]
        change = torch.zeros(basis.shape[1], basis.shape[1])
        if start is not None:
            change = basis.T @ (torch.from_numpy(start) @ basis - basis)
        change.requires_grad_()

        def similarities() -> list[Tensor]:
            return _cosines(coordinates + coordinates @ change.T, columns)

        def penalty() -> Tensor:
            return strength * change.square().sum()

        self._fit([change], similarities, indices, penalty, _MATRIX_STEPS)
        matrix = torch.eye(len(basis)) + basis @ change.detach() @ basis.T
        return Change(matrix=matrix.numpy())

    def matrix_and_tokens(self, indices: Index, strength: float, matrix: Floats) -> Change:
        """Token weights and, after them, the matrix again."""
        ids, factors = self._token_factors(indices[:_TOKEN_EXAMPLES], strength, matrix)
        change = Change(tokens=(ids, factors.numpy()))
        means = torch.from_numpy(_means(change.apply(self.head, self.tokens), self.tokens))
        return replace(self.matrix(indices, strength, matrix, means), tokens=change.tokens)

    def _token_factors(self, indices: Index, strength: float, matrix: Floats) -> tuple[Ids, Tensor]:
        """Factors of token weights: ids [K] and factors [K]."""
        used, rows = np.unique(self.examples.rows[indices], return_inverse=True)
        columns = torch.from_numpy(rows.reshape(len(indices), -1)).T
        tokens = self.tokens.take(used)
        vectors = torch.from_numpy(_normalised(self.head, tokens) @ matrix.T)  # [T, H]
        weights = torch.from_numpy(self.head.weights(tokens))
        ids, position = np.unique(tokens.ids, return_inverse=True)
        slots, owners = torch.from_numpy(position), torch.from_numpy(tokens.sentence_of)
        logs = torch.zeros(len(ids), requires_grad=True)

        def similarities() -> list[Tensor]:
            # The cosine does not depend on the sum of the weights.
            weighted = (weights * bounded_exp(logs)[slots])[:, None] * vectors
            sums = torch.zeros(len(used), vectors.shape[1]).index_add(0, owners, weighted)
            return _cosines(sums, columns)

        def penalty() -> Tensor:
            return TOKEN_STRENGTH * strength * logs.square().sum()

        self._fit([logs], similarities, indices, penalty, _TOKEN_STEPS)
        return ids, bounded_exp(logs.detach())

    def _fit(
        self,
        parameters: list[Tensor],
        similarities: Callable[[], list[Tensor]],
        indices: Index,
        penalty: Callable[[], Tensor],
        steps: int,
    ) -> None:
        """Minimise the cross-entropy of the labels, or of the triplets' order, plus the penalty."""
        scale = initial_scale()
        targets = torch.from_numpy(self.examples.targets[indices]).float()
        optimiser = torch.optim.LBFGS(
            [*parameters, scale], max_iter=steps, history_size=10, line_search_fn="strong_wolfe"
        )

        def closure() -> Tensor:
            optimiser.zero_grad()
            loss = label_loss(similarities(), scale, targets)
            loss = loss + penalty() / len(targets)
            loss.backward()
            return loss

        before = [parameter.detach().clone() for parameter in parameters]
        try:
            optimiser.step(closure)
            diverged = not all(parameter.isfinite().all() for parameter in parameters)
        except RuntimeError as error:
            if "overflow" not in str(error):  # else a step size that is not finite
                raise
            diverged = True
        if diverged:  # learn nothing rather than something arbitrary
            for parameter, start in zip(parameters, before, strict=True):
                parameter.data.copy_(start)

    def _columns(self, indices: Index) -> list[Tensor]:
        """Rows of the features of each comparison of the examples: [N] each."""
        total = len(self.examples)
        comparisons = self.examples.rows.shape[1] - 1
        return [torch.from_numpy(indices + total * number) for number in range(comparisons)]

    def _features(self) -> tuple[Tensor, Tensor]:
        """By latent dim: dot products of the examples' pairs [P, L], squared norms [S, L]."""
        if self._dim_features is None:
            roots = centred_roots(self.head, self.tokens)  # [S, L, C]
            left, right = self.examples.pairs
            dots = np.concatenate(
                [
                    np.vecdot(roots[left[part]], roots[right[part]])
                    for part in np.array_split(np.arange(len(left)), len(left) // CHUNK + 1)
                ]
            )
            norms = np.vecdot(roots, roots)
            mean = norms.mean()
            self._dim_features = torch.from_numpy(dots / mean), torch.from_numpy(norms / mean)
        return self._dim_features


def bounded_exp(logarithms: Tensor) -> Tensor:
    """exp, but finite however far a line search steps."""
    return (_BOUND * (logarithms / _BOUND).tanh()).exp()


def initial_scale() -> Tensor:
    """Logarithm of the slope, and the offset, of the predicted label: [2]."""
    return torch.tensor([math.log(_SLOPE), _OFFSET], requires_grad=True)


def label_loss(similarities: list[Tensor], scale: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy of the labels given the similarity, or of triplets given both similarities."""
    first, *others = similarities
    slope = bounded_exp(scale[0])
    # The offset cancels out in a triplet.
    logits = slope * (first - others[0]) if others else slope * first + scale[1]
    return functional.binary_cross_entropy_with_logits(logits, targets)


def centred_roots(head: Head, tokens: TokenVectors) -> Floats:
    """sqrt(mixture) - centre of each sentence [S, L, C]; 0 for sentences without known tokens."""
    parts = [np.sqrt(head.mixtures(part)) - head.tensors["centre"] for part in tokens.chunks(CHUNK)]
    return np.nan_to_num(np.concatenate(parts))


def _cosines(vectors: Tensor, columns: Tensor) -> list[Tensor]:
    """Cosine of the first sentence of every example and each of the others: [N] each."""
    units = functional.normalize(vectors, dim=-1, eps=_TINY)
    first, *others = (units[column] for column in columns)
    return [(first * other).sum(dim=-1) for other in others]


def _normalised(head: Head, tokens: TokenVectors) -> Floats:
    vectors = tokens.vectors.astype(np.float32)
    scale = np.float32(np.sqrt(vectors.shape[1]))
    return normalise(vectors, head.tensors["mean"], head.spec.normalisation) / scale


def _means(head: Head, tokens: TokenVectors) -> Floats:
    """Weighted mean of the normalised token vectors of each sentence [S, H]; 0 without tokens."""
    means = np.zeros((len(tokens), tokens.vectors.shape[1]), np.float32)
    for number, part in enumerate(tokens.chunks(CHUNK)):
        weights = head.weights(part)
        filled = np.flatnonzero(part.lengths)
        starts = (np.cumsum(part.lengths) - part.lengths)[filled]
        if not len(filled):
            continue
        sums = np.add.reduceat(_normalised(head, part) * weights[:, None], starts, axis=0)
        totals = np.add.reduceat(weights, starts)
        means[number * CHUNK + filled] = sums / np.maximum(totals, _TINY)[:, None]
    return means
