"""Teaching: the student's similarities within a batch follow the teacher's, without labels."""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.device import device
from training.lessons import Lesson, Lessons
from training.objectives import Outcome, elbo
from training.recipe import Recipe
from training.vae import Autoencoder, CategoricalVAE, TokenVAE
from training.weighting import weigher

_TEMPERATURE, _DIVERGENCE_WEIGHT = 0.05, 0.3  # of the divergence in the loss
_TINY = 1e-9  # keeps the gradient of a square root finite


class _Student(TokenVAE):
    """An encoder whose token weights are learned with it."""

    def __init__(self, hidden_size: int, recipe: Recipe) -> None:
        super().__init__(hidden_size, recipe)
        if not recipe.elbo_weight:
            self.decoder = nn.Sequential()  # unused: Adam would have no state to save for it
        self.weigher = weigher(hidden_size) if recipe.token_weighting == "learned" else None

    def represent(self, tokens: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return a vector [N, D] of each sentence and the code [U, L, *] of their tokens.

        Args:
            tokens: the distinct token vectors, [U, H].
            counts: occurrences of each token in each sentence, [N, U].
        """
        code = self.code(tokens)
        weights = counts if self.weigher is None else counts * self.weigher(tokens)[:, 0].exp()
        shares = weights / weights.sum(dim=1, keepdim=True)  # [N, U]
        return shares @ self.parts(code), code

    def parts(self, code: Tensor) -> Tensor:
        """What a token of weight 1 adds to a sentence: [U, L, *] -> [U, D]."""
        raise NotImplementedError

    def directions(self, sentences: Tensor) -> Tensor:
        """Vectors whose cosine is the similarity of two sentences: [N, D] -> [N, D]."""
        raise NotImplementedError


class Student(_Student, CategoricalVAE):
    """A categorical encoder. Its similarity is `centred`, with a learned centre."""

    def __init__(self, hidden_size: int, recipe: Recipe) -> None:
        super().__init__(hidden_size, recipe)
        self.inference_temperature = recipe.inference_temperature or recipe.temperature
        uniform = torch.full((recipe.latent_dims * recipe.classes,), recipe.classes**-0.5)
        self.centre = nn.Parameter(uniform)  # [L*C]
        if recipe.bhattacharyya_weight:
            self.log_scale = nn.Parameter(torch.tensor(math.log(3.0)))

    def parts(self, code: Tensor) -> Tensor:
        """The token distributions: [U, L, C] -> [U, L*C]."""
        return (code / self.inference_temperature).softmax(dim=-1).flatten(1)

    def directions(self, sentences: Tensor) -> Tensor:
        """Roots of the mixtures [N, L*C], minus the centre."""
        return _roots(sentences) - self.centre

    def bhattacharyya(self, mixtures: Tensor) -> Tensor:
        """The `bhattacharyya` similarity of every two mixtures, on a learned scale: [N, N]."""
        roots = _roots(mixtures)
        distance = 1 - roots @ roots.T / self.latent_dims
        return 1 - self.log_scale.exp() * distance


class LinearStudent(_Student, Autoencoder):
    """A linear map of L numbers, averaged: the control that tells what the mixture is worth."""

    def parts(self, code: Tensor) -> Tensor:
        """The numbers themselves: [U, L, 1] -> [U, L]."""
        return code.flatten(1)

    def directions(self, sentences: Tensor) -> Tensor:
        """The weighted mean itself."""
        return sentences


def _roots(mixtures: Tensor) -> Tensor:
    return mixtures.clamp(min=_TINY).sqrt()


class Taught:
    """The objective of a taught head: the teacher's similarities within every batch."""

    def __init__(self, lessons: Lessons, hidden_size: int, recipe: Recipe) -> None:
        torch.manual_seed(recipe.seed)
        kind = Student if recipe.model == "categorical" else LinearStudent
        self.vae: Student | LinearStudent = kind(hidden_size, recipe)
        self._lessons, self._recipe = lessons, recipe
        self._anchors = min(len(lessons.lengths), anchors_per_step(recipe))

    def batch(self, step: int) -> Lesson:
        """Sentences of a random order, each with neighbours by the teacher."""
        seed, neighbours = self._recipe.seed, self._lessons.neighbours
        epoch, position = divmod(step, len(neighbours) // self._anchors)
        order = np.random.default_rng([seed, epoch]).permutation(len(neighbours))
        anchors = order[position * self._anchors :][: self._anchors]
        sentences = np.unique(np.concatenate([anchors, neighbours[anchors].ravel()]))
        return self._lessons.batch(sentences)

    def evaluate(self, batch: Lesson, step: int, beta: float) -> Outcome:
        """The error against the teacher, plus the ELBO if the recipe weights it."""
        recipe, vae = self._recipe, self.vae
        tokens, teacher = batch.vectors.to(device()), batch.teacher.to(device())
        target = recipe.similarity_floor + (1 - recipe.similarity_floor) * (teacher @ teacher.T)
        sentences, code = vae.represent(tokens, batch.counts.to(device()))
        directions = functional.normalize(vae.directions(sentences), dim=-1)  # [N, D]
        loss = teaching_loss(directions @ directions.T, target)
        if recipe.bhattacharyya_weight and isinstance(vae, Student):
            error = squared_error(vae.bhattacharyya(sentences), target)
            loss = loss + recipe.bhattacharyya_weight * error
        parts = {"teaching": loss.detach()}
        if recipe.elbo_weight:
            beside = elbo(vae, tokens, recipe, step, beta)
            loss, parts = loss + recipe.elbo_weight * beside.loss, {**parts, **beside.parts}
        return Outcome(loss, parts, code)


def anchors_per_step(recipe: Recipe) -> int:
    """Sentences per step whose neighbours are added."""
    return max(1, recipe.batch_sentences // (1 + recipe.neighbours))


def teaching_loss(student: Tensor, teacher: Tensor) -> Tensor:
    """How far the student's similarities [N, N] within a batch are from the teacher's.

    The squared error over the pairs, plus the divergence of each sentence's distribution over the
    others, in which near neighbours count most.
    """
    same = torch.eye(len(teacher), dtype=torch.bool, device=teacher.device)
    expected, actual = (
        (similarities / _TEMPERATURE).masked_fill(same, -torch.inf).log_softmax(dim=1)[~same]
        for similarities in (teacher, student)
    )
    divergence = functional.kl_div(actual, expected, reduction="sum", log_target=True)
    return squared_error(student, teacher) + _DIVERGENCE_WEIGHT * divergence / len(teacher)


def squared_error(student: Tensor, teacher: Tensor) -> Tensor:
    """Mean squared error over the pairs of a batch, given similarities [N, N]."""
    rows, columns = torch.triu_indices(len(teacher), len(teacher), 1, device=teacher.device)
    return (student - teacher)[rows, columns].square().mean()
