"""The service on Ray Serve, on a small local cluster."""

import socket
from importlib import import_module
from pathlib import Path

import httpx
import pytest
import yaml

from model_store import Store
from tests.app.conftest import failure

CONFIG = Path(__file__).parents[2] / "deploy/ray/serve.yaml"


@pytest.mark.usefixtures("ray_cluster")
def test_serves_requests(store: Store) -> None:
    from ray import serve  # here: importing it takes seconds, in every worker

    from app.ray_serve import LatteMix

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {"LATTEMIX_STORE": str(store.root), "LATTEMIX_MODEL": "tiny"}
    actor = {"num_cpus": 1, "runtime_env": {"env_vars": environment}}
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    try:
        serve.run(LatteMix.options(ray_actor_options=actor).bind(), name="lattemix")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            response = client.post("/similarity", json={"pairs": [["a dog", "a dog"]]})
            assert response.json()["similarities"][0]["centred"] == pytest.approx(1)
            assert failure(client.post("/embed", json={"inputs": " "}))[:2] == (400, "Empty")
            assert client.get("/ready").status_code == 200
        (deployment,) = serve.status().applications["lattemix"].deployments
        assert deployment == configuration()["deployments"][0]["name"]
    finally:
        serve.shutdown()


def configuration() -> dict[str, list[dict[str, str]]]:
    (application,) = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))["applications"]
    return dict(application)


def test_configuration_imports_the_application() -> None:
    from ray import serve

    module, _, name = str(configuration()["import_path"]).partition(":")
    assert isinstance(getattr(import_module(module), name), serve.Application)
