"""Teaching: the student's similarities within a batch follow the teacher's, without labels."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from training.device import device
from training.lessons import Lesson, Lessons
from training.objectives import Outcome, elbo
from training.recipe import Recipe
from training.vae import CategoricalVAE
from training.weighting import weigher

_TEMPERATURE, _DIVERGENCE_WEIGHT = 0.05, 0.3  # of the divergence in the loss
_TINY = 1e-9  # keeps the gradient of a square root finite


class Student(CategoricalVAE):
    """A categorical VAE whose token weights and centre are learned with its encoder."""

    def __init__(self, hidden_size: int, recipe: Recipe) -> None:
        super().__init__(hidden_size, recipe)
        if not recipe.elbo_weight:
            self.decoder = nn.Sequential()  # unused: Adam would have no state to save for it
        self.inference_temperature = recipe.inference_temperature or recipe.temperature
        self.weigher = weigher(hidden_size) if recipe.token_weighting == "learned" else None
        uniform = torch.full((recipe.latent_dims * recipe.classes,), recipe.classes**-0.5)
        self.centre = nn.Parameter(uniform)  # [L*C]

    def mixtures(self, tokens: Tensor, counts: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mixtures [N, L*C] of sentences and the code [U, L, C] of their tokens.

        Args:
            tokens: the distinct token vectors, [U, H].
            counts: occurrences of each token in each sentence, [N, U].
        """
        code = self.code(tokens)
        distributions = (code / self.inference_temperature).softmax(dim=-1).flatten(1)  # [U, L*C]
        weights = counts if self.weigher is None else counts * self.weigher(tokens)[:, 0].exp()
        shares = weights / weights.sum(dim=1, keepdim=True)  # [N, U]
        return shares @ distributions, code

    def similarities(self, mixtures: Tensor) -> Tensor:
        """The `centred` similarity of every two mixtures: [N, L*C] -> [N, N]."""
        roots = mixtures.clamp(min=_TINY).sqrt() - self.centre
        directions = functional.normalize(roots, dim=-1)
        return directions @ directions.T


class Taught:
    """The objective of a taught head: mean squared error of the student's similarities."""

    def __init__(self, lessons: Lessons, hidden_size: int, recipe: Recipe) -> None:
        torch.manual_seed(recipe.seed)
        self.vae = Student(hidden_size, recipe)
        self._lessons, self._recipe = lessons, recipe
        sentences = len(lessons.lengths)
        self._anchors = min(sentences, anchors_per_step(recipe))

    def batch(self, step: int) -> Lesson:
        """Sentences of a random order, each with neighbours by the teacher."""
        seed, neighbours = self._recipe.seed, self._lessons.neighbours
        steps_per_epoch = len(neighbours) // self._anchors
        epoch, position = divmod(step, steps_per_epoch)
        order = np.random.default_rng([seed, epoch]).permutation(len(neighbours))
        anchors = order[position * self._anchors :][: self._anchors]
        sentences = np.unique(np.concatenate([anchors, neighbours[anchors].ravel()]))
        return self._lessons.batch(sentences)

    def evaluate(self, batch: Lesson, step: int, beta: float) -> Outcome:
        """The error against the teacher, plus the ELBO if the recipe weights it."""
        target = device()
        tokens = batch.vectors.to(target)
        mixtures, code = self.vae.mixtures(tokens, batch.counts.to(target))
        teacher = batch.teacher.to(target)
        similarities = self.vae.similarities(mixtures)
        loss = teaching_loss(similarities, teacher @ teacher.T, self._recipe.similarity_floor)
        parts = {"teaching": loss.detach()}
        if weight := self._recipe.elbo_weight:
            beside = elbo(self.vae, tokens, self._recipe, step, beta)
            loss, parts = loss + weight * beside.loss, {**parts, **beside.parts}
        return Outcome(loss, parts, code)


def anchors_per_step(recipe: Recipe) -> int:
    """Sentences per step whose neighbours are added."""
    return max(1, recipe.batch_sentences // (1 + recipe.neighbours))


def teaching_loss(student: Tensor, teacher: Tensor, floor: float = 0.0) -> Tensor:
    """How far the student's similarities within a batch are from the teacher's.

    Mean squared error over the pairs, plus the divergence of each sentence's distribution over the
    others, in which near neighbours count most. With a floor, sentences that the teacher finds
    unrelated (0) need not be orthogonal: their target is the floor.

    Args:
        student: similarities by the student, [N, N].
        teacher: similarities by the teacher, [N, N].
        floor: target for a similarity of 0; that for 1 is 1.
    """
    target = floor + (1 - floor) * teacher
    rows, columns = torch.triu_indices(len(target), len(target), offset=1, device=target.device)
    error = (student - target)[rows, columns].square().mean()
    same = torch.eye(len(target), dtype=torch.bool, device=target.device)
    expected, actual = (
        (similarities / _TEMPERATURE).masked_fill(same, -torch.inf).log_softmax(dim=1)
        for similarities in (target, student)
    )
    divergence = functional.kl_div(
        actual[~same], expected[~same], reduction="sum", log_target=True
    ) / len(target)
    return error + _DIVERGENCE_WEIGHT * divergence
