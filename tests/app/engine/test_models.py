"""Several models in one server: choice, shared limits, reload."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.engine import Engine, Models
from app.engine.errors import OverloadedError, UnavailableError, UnknownModelError
from app.observe import Metrics, Trace
from app.server import create_app
from app.settings import Settings
from lattemix.build.assemble import assemble
from lattemix.build.backbones import Checkpoint
from lattemix.build.head import Head
from lattemix.encoder import Encoder
from model_store import LatteMixError, Store
from tests.app.conftest import eventually, failure
from tests.app.engine.conftest import run, trace, until
from tests.tiny import token_vectors

TEXTS = ["a man is eating", "the sea was calm"]


@pytest.fixture
def both(private_store: Store, static_store: Store) -> Store:
    """Holds `tiny:fp32` and `static:fp32`."""
    shutil.copytree(static_store.root / "static", private_store.root / "static")
    return private_store


@pytest.fixture
def two(both: Store, settings: Settings) -> Settings:
    return settings.model_copy(update={"store": both.root, "models": ("tiny", "static")})


@pytest.fixture
def models(two: Settings) -> Iterator[Models]:
    models = Models(two, Metrics())
    yield models
    models.close()


def replace_tiny(store: Store, head: Head, backbone: Path) -> None:
    """Publish `tiny` again with other probabilities."""
    directory = store.root.parent / "head"
    spec = head.spec.model_copy(update={"temperature": head.spec.temperature / 2})
    vectors = token_vectors(Checkpoint.read(backbone), spec.probes)
    probes = Head(spec, head.tensors).mixtures(vectors)
    Head(spec, {**head.tensors, "probes": probes}).save(directory)
    assemble(directory, store, "tiny", str(backbone))


def test_first_model_is_the_default(models: Models) -> None:
    assert [model.name for model in models] == ["tiny", "static"]
    assert models.get(None) is models.get("tiny") is models.get("tiny:fp32") is models.default


@pytest.mark.parametrize("name", ["", "large", "tiny:int8", "x" * 200])
def test_unknown_model_is_an_error_that_lists_the_served_ones(models: Models, name: str) -> None:
    with pytest.raises(UnknownModelError, match=r"choose tiny, static\.$") as caught:
        models.get(name)
    assert len(str(caught.value)) < 160


def test_rejects_a_model_that_is_named_twice(two: Settings) -> None:
    twice = two.model_copy(update={"models": ("tiny", "tiny:fp32")})
    with pytest.raises(LatteMixError, match="LATTEMIX_MODELS names tiny:fp32 twice"):
        Models(twice, Metrics())


def test_cache_is_divided_among_models_that_have_one(both: Store, two: Settings) -> None:
    shutil.copytree(both.root / "tiny", both.root / "other")
    manifest = both.root / "other" / "fp32" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"name": "tiny"', '"name": "other"'))
    models = Models(two.model_copy(update={"models": ("tiny", "static", "other")}), Metrics())
    rows = {model.name: len(model.engine.cache._mixtures) for model in models}
    models.close()
    alone = Models(two, Metrics())
    assert rows["static"] == 0
    assert rows["tiny"] == rows["other"] == len(alone.default.engine.cache._mixtures) // 2
    alone.close()


def test_limits_hold_for_all_models_together(two: Settings) -> None:
    models = Models(two.model_copy(update={"max_sentences": 2}), Metrics())
    first, second = (model.engine for model in models)

    async def scenario() -> None:
        with models.host.admitted(Trace("a")):
            models.host.admit_sentences(2, Trace("a"))
            for engine in (first, second):
                with pytest.raises(OverloadedError, match="LATTEMIX_MAX_SENTENCES is 2"):
                    await engine.encode(TEXTS, trace())

    run(scenario)
    models.close()


def test_draining_fails_the_check_but_requests_are_served(models: Models) -> None:
    async def scenario() -> None:
        await models.check()
        models.host.draining = True
        with pytest.raises(UnavailableError, match="stopping"):
            await models.check()
        assert len((await models.default.engine.encode(["a dog"], trace())).mixtures) == 1

    run(scenario)


def test_reload_replaces_a_changed_model_and_keeps_the_others(
    models: Models, both: Store, head: Head, backbone: Path
) -> None:
    tiny, static = models
    replace_tiny(both, head, backbone)

    async def scenario() -> None:
        with models.lease("tiny") as leased:
            before = (await leased.engine.encode(TEXTS, trace())).mixtures
            await models.reload()
            assert models.get("static") is static
            new = models.get("tiny")
            assert new.manifest.fingerprint != tiny.manifest.fingerprint
            # The request in progress keeps its model.
            after = (await leased.engine.encode(TEXTS, trace())).mixtures
            np.testing.assert_array_equal(before, after)
            assert not tiny.engine.stopped
        await until(lambda: tiny.engine.stopped)
        changed = (await new.engine.encode(TEXTS, trace())).mixtures
        assert np.abs(changed - before).max() > 1e-4

    run(scenario)


def test_reload_keeps_a_model_whose_artifact_is_damaged(
    models: Models, both: Store, caplog: pytest.LogCaptureFixture
) -> None:
    tiny = models.get("tiny")
    (both.root / "tiny" / "fp32" / "manifest.json").write_text("{}")
    run(models.reload)
    assert models.get("tiny") is tiny
    assert "tiny is not reloaded" in caplog.text


@pytest.mark.parametrize("error", [LatteMixError("too slow"), OSError("disk")])
def test_reload_keeps_a_model_whose_replacement_does_not_start(
    models: Models,
    both: Store,
    head: Head,
    backbone: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
) -> None:
    def fail(name: str, encoder: Encoder) -> Engine:
        raise error

    tiny = models.get("tiny")
    replace_tiny(both, head, backbone)
    monkeypatch.setattr(models, "_start", fail)
    caplog.set_level("INFO", "lattemix")
    run(models.reload)
    assert models.get("tiny") is tiny
    assert f"tiny is not reloaded: {error}" in caplog.text
    assert "static is unchanged" in caplog.text


def test_check_does_not_fail_when_a_model_is_replaced_meanwhile(
    models: Models, both: Store, head: Head, backbone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny, static = models
    replace_tiny(both, head, backbone)

    async def check_while_reloading() -> None:
        await models.reload()
        await until(lambda: tiny.engine.stopped)

    async def scenario() -> None:
        monkeypatch.setattr(static.engine, "check", check_while_reloading)
        models._models = {"static": static, "tiny": tiny}
        await models.check()

    run(scenario)


def test_requests_choose_a_model(two: Settings, encoder: Encoder, static_encoder: Encoder) -> None:
    with TestClient(create_app(two)) as client:
        for name, expected in {"tiny": encoder, "static": static_encoder}.items():
            request = {"inputs": TEXTS, "format": "dense", "model": name}
            response = client.post("/embed", json=request)
            body = response.json()
            np.testing.assert_allclose(
                body["embeddings"], expected.encode(TEXTS).mixtures, atol=1e-6
            )
            fingerprint = expected.manifest.fingerprint
            assert (body["model"], body["fingerprint"]) == (name, fingerprint)
            assert (response.headers["x-model"], response.headers["x-fingerprint"]) == (
                name,
                fingerprint,
            )
            info = client.get("/info", params={"model": name}).json()
            assert (info["model"], info["models"]) == (name, ["tiny", "static"])
        listed = client.get("/v1/models").json()["data"]
        assert [entry["id"] for entry in listed] == ["tiny", "static"]
        metrics = client.get("/metrics").text
        for name in ("tiny", "static"):
            assert f'lattemix_sentences_total{{model="{name}"}} 2.0' in metrics
        unknown = client.post("/rank", json={"query": "a", "texts": ["b"], "model": "x"})
        message = "There is no model 'x' here: choose tiny, static."
        assert failure(unknown) == (404, "NotFound", message)


def test_no_request_is_dropped_or_mixed_up_during_reloads(
    two: Settings, both: Store, head: Head, backbone: Path
) -> None:
    """Concurrent requests to two models while one is replaced: each answer fits its fingerprint."""
    app = create_app(two.model_copy(update={"cache_bytes": 0}))
    models: Models = app.state.service.models
    old = models.get("tiny").manifest.fingerprint
    expected: dict[str, np.ndarray] = {}
    answers: list[tuple[str, str, list[object]]] = []
    stop = threading.Event()
    with TestClient(app) as client:

        def work(name: str) -> None:
            while not stop.is_set():
                request = {"inputs": TEXTS, "format": "dense", "model": name}
                response = client.post("/embed", json=request)
                assert response.status_code == 200
                body = response.json()
                answers.append((name, body["fingerprint"], body["embeddings"]))

        threads = [threading.Thread(target=work, args=(n,)) for n in ("tiny", "static", "tiny")]
        for thread in threads:
            thread.start()
        try:
            replace_tiny(both, head, backbone)
            client.portal.call(models.reload)  # type: ignore[union-attr]
            new = models.get("tiny").manifest.fingerprint
            seen = len(answers)
            eventually(lambda: len(answers) > seen + 30)
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    static = models.get("static").manifest.fingerprint
    assert {(name, fingerprint) for name, fingerprint, _ in answers} == {
        ("tiny", old),
        ("tiny", new),
        ("static", static),
    }
    for _, fingerprint, mixtures in answers:
        first = expected.setdefault(fingerprint, np.array(mixtures))
        np.testing.assert_allclose(mixtures, first, atol=1e-5)
