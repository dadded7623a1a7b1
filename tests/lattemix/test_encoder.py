import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.settings import Settings
from lattemix import encoder as encoder_module
from lattemix.build.backbones import Checkpoint
from lattemix.build.head import Head
from lattemix.encoder import Encoder, batches, usable_cores
from lattemix.errors import EmptyTextError, NonFiniteError, TextError
from lattemix.session import Session
from lattemix.tokenization import Tokens
from model_store import Artifact, ArtifactError, Store
from tests.conftest import SENTENCES
from training.backbones import load


def test_mixtures_match_the_torch_reference(
    encoder: Encoder, checkpoint: Checkpoint, head: Head
) -> None:
    expected = head.mixtures(load(checkpoint, head.spec.max_tokens).encode(SENTENCES))
    found = encoder.encode(SENTENCES).mixtures
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_every_latent_dim_is_a_distribution(encoder: Encoder) -> None:
    mixtures = encoder.encode(SENTENCES).mixtures
    assert mixtures.shape == (len(SENTENCES), 4, 5)
    assert mixtures.dtype == np.float32
    assert (mixtures >= 0).all()
    np.testing.assert_allclose(mixtures.sum(axis=-1), 1, atol=1e-5)


def test_rejects_model_with_non_finite_mixtures(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Session.run
    monkeypatch.setattr(Session, "run", lambda *arguments: run(*arguments) * np.nan)
    with pytest.raises(NonFiniteError, match="not finite: serve another precision"):
        Encoder(artifact, provider="cpu")


def test_mixture_does_not_depend_on_its_batch(artifact: Artifact) -> None:
    encoder = Encoder(artifact, provider="cpu", token_budget=64)
    texts = [*SENTENCES, "dog", "a " * 30]
    together = encoder.encode(texts)
    backwards = encoder.encode(texts[::-1])
    for i, text in enumerate(texts):
        alone = encoder.encode([text])
        np.testing.assert_allclose(together.mixtures[i], alone.mixtures[0], atol=1e-6)
        np.testing.assert_allclose(backwards.mixtures[-1 - i], alone.mixtures[0], atol=1e-6)
        assert together.tokens[i] == alone.tokens[0]


def test_equal_texts_are_computed_once(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    run = encoder.run

    def counting(batch):
        rows.append(len(batch))
        return run(batch)

    monkeypatch.setattr(encoder, "run", counting)
    encoding = encoder.encode(["a dog", "a man", "a dog", "a dog"])
    assert sum(rows) == 2
    np.testing.assert_array_equal(encoding.mixtures[0], encoding.mixtures[3])
    assert not np.array_equal(encoding.mixtures[0], encoding.mixtures[1])


def test_reports_truncation(encoder: Encoder) -> None:
    encoding = encoder.encode(["dog", "dog " * 14, "dog " * 15], "right")
    assert encoding.tokens == [3, 16, 17]
    assert encoding.truncated == [False, False, True]


def test_empty_list_returns_empty_array(encoder: Encoder) -> None:
    assert encoder.encode([]).mixtures.shape == (0, 4, 5)


@given(st.lists(st.integers(1, 50), max_size=60), st.integers(1, 100))
def test_batches_hold_every_text_once_within_the_budget(lengths: list[int], budget: int) -> None:
    found = list(batches(lengths, budget))
    assert sorted(i for batch in found for i in batch) == list(range(len(lengths)))
    for batch in found:
        longest = max(lengths[i] for i in batch)
        assert longest * len(batch) <= budget or len(batch) == 1


def test_rejects_centre_with_wrong_shape(private_store: Store) -> None:
    artifact = private_store.open("tiny")
    np.save(artifact.path / "centre.npy", np.zeros((2, 2), np.float32))
    with pytest.raises(ArtifactError, match=r"centre\.npy has shape \(2, 2\), not \(4, 5\)"):
        Encoder(artifact, provider="cpu")


def test_rejects_centre_with_wrong_dtype(private_store: Store) -> None:
    artifact = private_store.open("tiny")
    np.save(artifact.path / "centre.npy", np.zeros((4, 5), np.int32))
    with pytest.raises(ArtifactError, match=r"centre\.npy holds int32, not float32"):
        Encoder(artifact, provider="cpu")


@pytest.mark.parametrize("size", [0, 20, 127, 140])
def test_rejects_truncated_centre_file(private_store: Store, size: int) -> None:
    artifact = private_store.open("tiny")
    centre = artifact.path / "centre.npy"
    centre.write_bytes(centre.read_bytes()[:size])
    with pytest.raises(ArtifactError, match=r"centre\.npy cannot be read as an array"):
        Encoder(artifact, provider="cpu")


@pytest.mark.parametrize(
    ("quota", "bound", "expected"),
    [
        ("max 100000", 8, 8),
        ("200000 100000", 8, 2),
        ("150000 100000", 8, 2),
        ("10000 100000", 8, 1),
        ("900000 100000", 4, 4),
        (None, 3, 3),
    ],
)
def test_usable_cores_respects_affinity_and_cgroup_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str | None, bound: int, expected: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(bound)), raising=False)
    if quota is not None:
        (tmp_path / "cpu.max").write_text(quota)
    assert usable_cores(tmp_path / "cpu.max") == expected


@pytest.mark.parametrize(
    ("cores", "threads", "expected"),
    [(2, 0, (1, 2)), (16, 0, (1, 16)), (8, 3, (3, 1))],
)
def test_threads_and_parallel_batches_by_core_count(
    artifact: Artifact,
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    threads: int,
    expected: tuple[int, int],
) -> None:
    monkeypatch.setattr(encoder_module, "usable_cores", lambda: cores)
    encoder = Encoder(artifact, provider="cpu", threads=threads)
    used = encoder._session._session.get_session_options().intra_op_num_threads
    assert (used, encoder.parallel) == expected
    assert 256 * used <= encoder.token_budget <= 384 * used
    wide = encoder._wide._session.get_session_options()
    assert wide.intra_op_num_threads == max(used, min(encoder.parallel, 8))


@pytest.mark.parametrize(
    ("seconds", "overhead", "budget"),
    [
        (lambda tokens: 0.002 + 0.0002 * tokens, 10, 320),
        (lambda tokens: 0.0002 * tokens, 0, 256),
        (lambda tokens: 0.002, 12, 384),  # tokens cost nothing
        (lambda tokens: 0.1 + 0.0002 * tokens, 12, 384),
    ],
)
def test_token_budget_follows_measured_overhead(
    artifact: Artifact,
    monkeypatch: pytest.MonkeyPatch,
    seconds: Callable[[int], float],
    overhead: float,
    budget: int,
) -> None:
    monkeypatch.setattr(
        Encoder, "_seconds", lambda _, batch: seconds(sum(len(text.ids) for text in batch))
    )
    encoder = Encoder(artifact, provider="cpu", threads=1)
    assert encoder.overhead == pytest.approx(overhead)
    assert encoder.token_budget == budget


def test_run_on_all_cores_gives_the_same_mixtures(artifact: Artifact) -> None:
    encoder = Encoder(artifact, provider="cpu")
    tokens = encoder.tokenize(SENTENCES[:8])
    beside, alone = encoder.run(tokens), encoder.run(tokens, alone=True)
    np.testing.assert_allclose(alone, beside, atol=1e-6)


def test_rejects_lone_surrogate(encoder: Encoder) -> None:
    with pytest.raises(TextError, match="lone surrogate"):
        encoder.encode(["a", "\ud800"])


def test_empty_text_error_has_its_index(encoder: Encoder) -> None:
    with pytest.raises(EmptyTextError, match="Text 4 is empty") as caught:
        encoder.encode(["a", "dog", "a", " "])
    assert caught.value.index == 3


def test_load_passes_settings_to_the_session(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    options = []
    start = onnxruntime.InferenceSession

    def watching(path, session_options, providers, **others):
        options.append((session_options.intra_op_num_threads, providers))
        return start(path, session_options, providers=providers, **others)

    monkeypatch.setattr(onnxruntime, "InferenceSession", watching)
    settings = Settings(
        store=store.root, model="tiny", threads=3, token_budget=7, provider="cpu", device_id=2
    )
    encoder = Encoder.load(settings)
    assert options == [(3, ["CPUExecutionProvider"])]
    assert encoder.token_budget == 7


def test_load_rejects_artifact_replaced_while_loading(
    store: Store, artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = Store(tmp_path)
    shutil.copytree(store.root / "tiny", tmp_path / "tiny")
    load = encoder_module.Tokenizer

    def slowly(*arguments: object) -> object:
        artifact.manifest.model_copy(update={"created": datetime.now(UTC)}).write(
            copy.open("tiny:fp32").path
        )
        return load(*arguments)

    monkeypatch.setattr(encoder_module, "Tokenizer", slowly)
    with pytest.raises(ArtifactError, match="was replaced while it was loaded: start again"):
        Encoder.load(Settings(store=tmp_path, model="tiny", provider="cpu"))


def test_uses_all_cores_for_long_batches_or_while_they_are_awake(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoder_module, "usable_cores", lambda: 2)
    monkeypatch.setattr(encoder_module, "_AWAKE_SECONDS", 1000.0)
    monkeypatch.setattr(Encoder, "_measure", lambda _: (0.001, 8.0))
    encoder = Encoder(artifact, provider="cpu")
    used: list[str] = []
    for name in ("_session", "_wide"):
        session = getattr(encoder, name)
        run = lambda *feeds, session=session, name=name: used.append(name) or session.run(*feeds)  # noqa: E731
        monkeypatch.setattr(encoder, name, SimpleNamespace(run=run))
    short, long = [Tokens([1] * 3, 3)], [Tokens([1] * 3, 3)] * 2
    for batch, alone, pause in (
        (short, True, 2000.0),
        (long, True, 2000.0),
        (short, True, 0.0),
        (long, False, 0.0),
    ):
        encoder._last_run -= pause
        encoder.run(batch, alone)
    assert used == ["_session", "_wide", "_wide", "_session"]
