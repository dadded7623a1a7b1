from pathlib import Path

import numpy as np
import pytest

from lattemix.build.backbones import Checkpoint
from tests.tiny import SENTENCES, token_vectors
from training.teacher import FileTeacher, TeacherError, directions, open_teacher


def save(path: Path, vectors: np.ndarray) -> Path:
    np.save(path, vectors)
    return path


def test_backbone_teaches_by_mean_pooling(backbone: Path, checkpoint: Checkpoint) -> None:
    with open_teacher(str(backbone), [], ()) as teacher:
        vectors = teacher.vectors(SENTENCES)
    means = [tokens.mean(axis=0) for tokens in token_vectors(checkpoint, SENTENCES)]
    np.testing.assert_allclose(vectors, means, atol=1e-5)
    assert teacher.sha256 == checkpoint.sha256


def test_file_of_vectors_follows_the_order_of_the_corpus(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("one  two\nthree\none two\n")
    path = save(tmp_path / "vectors.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    with open_teacher(str(path), [corpus], ()) as teacher:
        assert teacher.vectors(["three", "one two"]).tolist() == [[2, 3], [0, 1]]


@pytest.mark.parametrize(
    ("vectors", "problem"),
    [
        (np.zeros((4, 2), np.float32), "has 4 rows for the 3 sentences of the corpus"),
        (np.zeros(3, np.float32), r"has shape \(3,\) of float32"),
        (np.zeros((3, 2), np.int64), "of int64, not a row of numbers per sentence"),
    ],
)
def test_file_that_does_not_fit_the_corpus_is_rejected(
    tmp_path: Path, vectors: np.ndarray, problem: str
) -> None:
    path = save(tmp_path / "vectors.npy", vectors)
    with pytest.raises(TeacherError, match=problem):
        FileTeacher(path, ["a", "b", "c"])


def test_missing_or_damaged_file_is_rejected(tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.npy"
    damaged.write_text("no array")
    for path in (tmp_path / "missing.npy", damaged):
        with pytest.raises(TeacherError, match=f"{path.name} cannot be read"):
            FileTeacher(path, ["a"])


def test_vectors_that_are_not_finite_are_rejected() -> None:
    vectors = np.array([[1, 0], [np.nan, 1]], np.float32)
    with pytest.raises(TeacherError, match="t gives sentence 2 a non-finite vector"):
        directions(vectors, "t")


def test_teacher_with_one_direction_for_all_sentences_is_rejected() -> None:
    with pytest.raises(TeacherError, match="t gives every sentence the same direction"):
        directions(np.array([[1, 2], [2, 4], [3, 6]], np.float32), "t")
