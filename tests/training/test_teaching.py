import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lattemix.build.assemble import assemble
from lattemix.build.head import Head
from lattemix.encoder import Encoder
from lattemix.model import Model
from lattemix.similarity import similarity
from model_store import Store
from tests.tiny import RECIPE, SENTENCES
from tests.training.conftest import Run, settings, weights
from training.checkpoint import TrainingCheckpoint
from training.encoding import EncodedCorpus
from training.evaluate.scores import head_scores
from training.heads import make_head
from training.interrupt import Interrupted
from training.lessons import Lesson, Lessons, nearest_neighbours
from training.recipe import Recipe
from training.teaching import Student, Taught, teaching_loss
from training.trainer import train

TAUGHT = {"objective": "taught", "teacher": "test", "batch_sentences": 8, "learning_rate": 1e-2}


class FixedTeacher:
    """Two groups of sentences: the even ones and the odd ones of a list."""

    sha256 = "0" * 64

    def vectors(self, sentences, advance=None):
        odd = np.array([SENTENCES.index(sentence) % 2 for sentence in sentences])
        return np.stack([1.0 - odd, odd], axis=1).astype(np.float32)


def taught_recipe(**changes) -> Recipe:
    return RECIPE.model_copy(update={**TAUGHT, **changes})


def lessons(sentences: int = 6) -> Lessons:
    rng = np.random.default_rng(1)
    teacher = rng.normal(size=(sentences, 3)).astype(np.float32)
    teacher /= np.linalg.norm(teacher, axis=1, keepdims=True)
    return Lessons(
        rng.normal(size=(5, 4)).astype(np.float32),
        rng.integers(0, 5, 2 * sentences).astype(np.int32),
        np.full(sentences, 2, np.int32),
        teacher,
        nearest_neighbours(teacher, 2),
    )


def test_student_learns_the_similarities_of_its_teacher(encoded: EncodedCorpus) -> None:
    recipe = taught_recipe(steps=150)
    head = make_head(encoded, recipe, "x", progress=False, teacher=FixedTeacher())
    mixtures = head.mixtures(encoded.backbone.encode(SENTENCES))
    scores = similarity("centred", mixtures[:-1], mixtures[1:], head.tensors["centre"])
    skipped = similarity("centred", mixtures[:-2], mixtures[2:], head.tensors["centre"])
    assert scores.max() < skipped.min()  # neighbours in the list are of different groups
    assert head.spec.training["teaching"] < 0.1
    assert "reconstruction" not in head.spec.training


def test_elbo_beside_the_teacher_is_logged(encoded: EncodedCorpus) -> None:
    recipe = taught_recipe(steps=3, elbo_weight=0.1)
    head = make_head(encoded, recipe, "x", progress=False, teacher=FixedTeacher())
    figures = head.spec.training
    assert {"teaching", "reconstruction", "kl"} <= figures.keys()
    assert figures["loss"] > figures["teaching"]


def test_same_seed_gives_the_same_head(encoded: EncodedCorpus) -> None:
    def head(seed: int) -> Head:
        recipe = taught_recipe(steps=5, seed=seed)
        return make_head(encoded, recipe, "x", progress=False, teacher=FixedTeacher())

    first, again, other = head(1), head(1), head(2)
    for name, tensor in first.tensors.items():
        np.testing.assert_array_equal(again.tensors[name], tensor)
    assert (other.tensors["encoder.0.weight"] != first.tensors["encoder.0.weight"]).any()


def test_mixtures_equal_those_of_the_finished_head() -> None:
    student = Student(4, taught_recipe(token_weighting="learned"))
    torch.nn.init.normal_(student.weigher[2].weight)
    lesson = lessons().batch(np.array([0, 3]))
    mixtures, code = student.represent(lesson.vectors, lesson.counts)
    factors = student.weigher(lesson.vectors)[:, 0].exp()
    expected = (code / student.inference_temperature).softmax(dim=-1)
    for counts, mixture in zip(lesson.counts, mixtures, strict=True):
        shares = counts * factors / (counts * factors).sum()
        torch.testing.assert_close(mixture, (shares[:, None, None] * expected).sum(0).flatten())


def test_batch_holds_anchors_and_their_neighbours() -> None:
    taught = Taught(lessons(), 4, taught_recipe(neighbours=2, batch_sentences=3))
    lesson = taught.batch(0)
    assert 2 <= len(lesson.counts) <= 3  # one anchor, two neighbours, distinct
    similarities = lesson.teacher @ lesson.teacher.T
    assert similarities.shape == (len(lesson.counts),) * 2
    assert lesson.counts.sum(dim=1).tolist() == [2] * len(lesson.counts)


def test_every_sentence_is_an_anchor_once_per_epoch() -> None:
    data = replace(lessons(6), neighbours=np.zeros((6, 0), np.int32))
    recipe = taught_recipe(neighbours=0, batch_sentences=2)
    taught = Taught(data, 4, recipe)
    seen = [row for step in range(3) for row in taught.batch(step).teacher.numpy().tolist()]
    assert sorted(seen) == sorted(data.teacher.tolist())


def test_loss_is_zero_for_the_teachers_similarities_only() -> None:
    teacher = torch.tensor([[1.0, 0.9, 0.0], [0.9, 1.0, 0.2], [0.0, 0.2, 1.0]])
    assert teaching_loss(teacher, teacher).item() == pytest.approx(0, abs=1e-6)
    assert teaching_loss(0.4 + 0.6 * teacher, teacher).item() > 0.01


def test_loss_penalises_swapped_neighbours_more_than_swapped_strangers() -> None:
    teacher = torch.eye(5)
    teacher[0, 1:] = teacher[1:, 0] = torch.tensor([0.9, 0.8, 0.1, 0.0])
    neighbours, strangers = teacher.clone(), teacher.clone()
    neighbours[0, 1:] = neighbours[1:, 0] = torch.tensor([0.8, 0.9, 0.1, 0.0])
    strangers[0, 1:] = strangers[1:, 0] = torch.tensor([0.9, 0.8, 0.0, 0.1])
    assert teaching_loss(neighbours, teacher) > 1.5 * teaching_loss(strangers, teacher)


def test_resumed_run_ends_with_the_same_weights(tmp_path: Path) -> None:
    recipe, data = taught_recipe(neighbours=2, token_weighting="learned"), lessons()

    class Interrupting(Taught):
        def batch(self, step: int) -> Lesson:
            if step == 12:
                raise Interrupted(signal.SIGINT)
            return super().batch(step)

    uninterrupted, _ = train(Taught(data, 4, recipe), recipe, 20, progress=False)
    checkpoint = TrainingCheckpoint(tmp_path, {}, every=5)
    with pytest.raises(Interrupted):
        train(Interrupting(data, 4, recipe), recipe, 20, checkpoint, progress=False)
    resumed, _ = train(Taught(data, 4, recipe), recipe, 20, checkpoint, progress=False)
    assert weights(resumed) == weights(uninterrupted)


def test_taught_job_makes_a_head_that_is_served(
    run: Run, arguments: list[str], backbone: Path, tmp_path: Path
) -> None:
    out = tmp_path / "taught"
    taught = settings(
        encoder="free",
        objective="taught",
        teacher=backbone,
        template="{token}",
        token_weighting="learned",
        neighbours=2,
    )
    assert run(*arguments, *taught, "--steps", 5, "--out", out) == 0
    head = Head.load(out)
    assert head.spec.backbone.template == "{token}"
    assert head.spec.backbone.architecture == "bert"
    [artifact] = assemble(out, Store(tmp_path / "store"), "taught", str(backbone))
    model = Model(Encoder(artifact))
    assert model.info().max_input_length is None  # a table has no context window
    whole = model.encode("the dog runs " * 100, truncate=False)
    np.testing.assert_allclose(whole, model.encode("the dog runs"), atol=1e-6)


def test_taught_linear_control_is_evaluated_by_its_weighted_mean(
    encoded: EncodedCorpus,
) -> None:
    recipe = taught_recipe(steps=5, model="autoencoder", latent_dims=6)
    head = make_head(encoded, recipe, "x", progress=False, teacher=FixedTeacher())
    tokens = encoded.backbone.encode(SENTENCES)
    scores = head_scores(head, tokens, np.array([0]), np.array([1]))
    codes = [head.codes(vectors)[..., 0].mean(axis=0) for vectors in tokens]
    expected = codes[0] @ codes[1] / np.linalg.norm(codes[0]) / np.linalg.norm(codes[1])
    assert scores["cosine"] == pytest.approx([expected], abs=1e-5)
