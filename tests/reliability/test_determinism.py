"""Equal inputs give equal outputs: after a restart, with other threads, in another process."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import training
from lattemix.build.assemble import assemble
from lattemix.build.backbones import Checkpoint
from lattemix.encoder import Encoder
from model_store import Artifact, Store
from model_store.manifest import sha256_of
from tests.tiny import RECIPE, SENTENCES
from training.backbones import load
from training.cache import VectorCache
from training.corpus import prepare
from training.encoding import EncodedCorpus
from training.heads import make_head
from training.recipe import Recipe

TEXTS = [*SENTENCES, "dog", "a " * 30, "ein Bär", "THE SEA"]

EXPORT = """
import sys
from pathlib import Path
from model_store import Store
from lattemix.build.assemble import assemble
head, root, backbone = sys.argv[1:]
assemble(Path(head), Store(Path(root)), "tiny", backbone)
"""
ENCODE = """
import hashlib, sys
from pathlib import Path
from lattemix.encoder import Encoder
from model_store import Store
root, *texts = sys.argv[1:]
mixtures = Encoder(Store(Path(root)).open("tiny"), provider="cpu", threads=1).encode(texts).mixtures
print(hashlib.sha256(mixtures.tobytes()).hexdigest())
"""


def run_program(program: str, *arguments: object, seed: int = 0) -> str:
    """Return the output of a program in another process, with another hash seed."""
    root = str(Path(training.__file__).parent.parent)
    environment = os.environ | {"PYTHONPATH": root, "PYTHONHASHSEED": str(seed)}
    command = [sys.executable, "-c", program, *map(str, arguments)]
    process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.parametrize("weighting", ["uniform", "sif"])
def test_head_does_not_depend_on_the_cache_directory(
    checkpoint: Checkpoint, tmp_path: Path, weighting: str
) -> None:
    weighted = Recipe.model_validate(RECIPE.model_dump() | {"token_weighting": weighting})
    for name in ("first", "second"):
        corpus = prepare(SENTENCES, tmp_path / name / "corpus")
        cache = VectorCache(tmp_path / name / "cache")
        encoded = EncodedCorpus(load(checkpoint, weighted.max_tokens), corpus, cache)
        make_head(encoded, weighted, "x", progress=False).save(tmp_path / name / "head")
    for file in ("head.safetensors", "head.json"):
        first, second = (sha256_of(tmp_path / name / "head" / file) for name in ("first", "second"))
        assert first == second


def test_cached_vectors_train_the_same_head(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """The second run reads the vectors that the first has cached."""
    corpus, cache = prepare(SENTENCES, tmp_path / "corpus"), VectorCache(tmp_path / "cache")
    for name in ("cold", "warm"):
        encoded = EncodedCorpus(load(checkpoint, RECIPE.max_tokens), corpus, cache)
        make_head(encoded, RECIPE, "x", progress=False).save(tmp_path / name)
    cold, warm = (sha256_of(tmp_path / name / "head.safetensors") for name in ("cold", "warm"))
    assert cold == warm


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_assembly_is_reproducible(
    head_directory: Path, backbone: Path, tmp_path: Path, precision: str
) -> None:
    manifests = []
    for name in ("first", "second"):
        (artifact,) = assemble(
            head_directory, Store(tmp_path / name), "tiny", str(backbone), precisions=[precision]
        )
        manifests.append(artifact.manifest)
    first, second = manifests
    assert first.files == second.files
    assert first.model_copy(update={"created": second.created}) == second


def test_assembly_in_another_process_is_identical(
    artifact: Artifact, head_directory: Path, backbone: Path, tmp_path: Path
) -> None:
    run_program(EXPORT, head_directory, tmp_path, backbone, seed=1)
    assert Store(tmp_path).open("tiny").manifest.files == artifact.manifest.files


def test_mixtures_are_identical_after_a_restart(store: Store, artifact: Artifact) -> None:
    first = Encoder(artifact, provider="cpu", threads=1).encode(TEXTS).mixtures
    second = Encoder(artifact, provider="cpu", threads=1).encode(TEXTS).mixtures
    np.testing.assert_array_equal(first, second)
    digest = run_program(ENCODE, store.root, *TEXTS, seed=3).strip()
    assert digest == hashlib.sha256(first.tobytes()).hexdigest()


@pytest.mark.parametrize("threads", [0, 1, 2])
@pytest.mark.parametrize("budget", [0, 1, 1000])
def test_threads_and_batches_do_not_change_mixtures(
    encoder: Encoder, artifact: Artifact, threads: int, budget: int
) -> None:
    configured = Encoder(artifact, provider="cpu", threads=threads, token_budget=budget)
    expected, actual = encoder.encode(TEXTS), configured.encode(TEXTS)
    np.testing.assert_allclose(actual.mixtures, expected.mixtures, rtol=0, atol=1e-6)
    assert (actual.tokens, actual.truncated) == (expected.tokens, expected.truncated)
