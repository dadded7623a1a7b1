"""The Dockerfile: what it copies exists, and every image runs unprivileged."""

import json
import re
from pathlib import Path

import pytest

from app.settings import Settings

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
TARGETS = ("cpu", "gpu", "train")

Instruction = tuple[str, str]


def instructions() -> list[Instruction]:
    """Instructions as (name, arguments), without comments, continued lines joined."""
    text = re.sub(r"(?m)^#.*\n", "", DOCKERFILE).replace("\\\n", " ")
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines if line]


def stages() -> dict[str, tuple[str, list[Instruction]]]:
    """Base and instructions by stage."""
    by_name: dict[str, tuple[str, list[Instruction]]] = {}
    for name, rest in instructions():
        if name == "FROM":
            base, _, stage = rest.split()
            by_name[stage] = (base, [])
        else:
            by_name[stage][1].append((name, rest))
    return by_name


def image(target: str) -> list[Instruction]:
    """All instructions of an image, those of its base stages first."""
    base, own = stages()[target]
    return (image(base) if base in stages() else []) + own


def last(target: str, name: str) -> str:
    return [rest for instruction, rest in image(target) if instruction == name][-1]


def variables(target: str) -> dict[str, str]:
    text = " ".join(rest for name, rest in image(target) if name == "ENV")
    return dict(part.split("=", 1) for part in text.split())


@pytest.mark.parametrize("target", TARGETS)
def test_image_runs_as_unprivileged_user(target: str) -> None:
    assert last(target, "USER") == "10001"


@pytest.mark.parametrize(
    ("target", "program"),
    [("cpu", "lattemix"), ("gpu", "lattemix"), ("train", "lattemix-train")],
)
def test_tini_starts_the_program_without_a_shell(target: str, program: str) -> None:
    assert json.loads(last(target, "ENTRYPOINT")) == ["tini", "--", program]
    assert json.loads(last(target, "CMD"))


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_health_check_requests_ready(target: str) -> None:
    check = last(target, "HEALTHCHECK")
    assert "/ready" in check
    assert json.loads(check.partition("CMD ")[2])[0] == "python"


@pytest.mark.parametrize("target", TARGETS)
def test_environment_of_an_image_consists_of_settings(target: str) -> None:
    names = {name for name in variables(target) if name.startswith("LATTEMIX_")}
    assert names
    assert names <= {f"LATTEMIX_{field.upper()}" for field in Settings.model_fields}


def test_image_sets_its_provider() -> None:
    assert variables("cpu")["LATTEMIX_PROVIDER"] == "cpu"
    assert variables("gpu")["LATTEMIX_PROVIDER"] == "cuda"


def test_gpu_image_requests_the_gpu_and_nvidia_smi() -> None:
    environment = variables("gpu")
    assert environment["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert environment["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert not any(name.startswith("NVIDIA_") for name in variables("cpu"))


def test_cudas_cache_belongs_to_the_images_user() -> None:
    runs = [rest for name, rest in image("gpu") if name == "RUN"]
    directory = variables("gpu")["CUDA_CACHE_PATH"]
    assert any(run.endswith(f"--owner 10001 --group 10001 {directory}") for run in runs)


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_image_serves_the_model_it_contains(target: str) -> None:
    (copied,) = [rest for name, rest in image(target) if name == "COPY" and "/models" in rest]
    assert variables(target)["LATTEMIX_STORE"] == copied.split()[-1] == "/models"


@pytest.mark.parametrize("target", TARGETS)
def test_store_belongs_to_the_images_user(target: str) -> None:
    """A new volume mounted there inherits the owner."""
    run = next(rest for name, rest in image(target) if name == "RUN")
    assert run.endswith("install --directory --owner 10001 --group 10001 /store")
    assert variables("train")["LATTEMIX_STORE"] == "/store"


def test_packages_are_installed_from_locks_by_hash() -> None:
    runs = [rest for name, rest in instructions() if name == "RUN"]
    hashed = "".join(run for run in runs if "--require-hashes --no-deps" in run)
    assert set(re.findall(r"-r requirements/(\w+)\.txt", hashed)) == {"cpu", "gpu", "build"}
    for run in runs:
        if re.search(r"pip\b.* install ", run) and "constraints.txt" not in run:
            assert "--require-hashes" in run or "--no-index" in run, run


def test_copied_files_exist_and_are_not_ignored() -> None:
    included = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = [
        source
        for name, rest in instructions()
        if name == "COPY" and "--from=" not in rest
        for source in rest.split()[:-1]
    ]
    assert len(copied) > 5
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source.split("/")[0] in included, source
    assert included == {source.split("/")[0] for source in copied}
