"""The locks that the images are installed from: complete, hashed, and consistent."""

import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Extras of each lock, besides the base dependencies.
LOCKS = {"cpu": ("cpu", "otel"), "gpu": ("gpu", "otel"), "build": ("cpu", "export")}
IMAGE = {"python_version": "3.11", "python_full_version": "3.11.0", "sys_platform": "linux"}
IMAGE |= {"platform_system": "Linux", "platform_machine": "x86_64", "extra": ""}
# Not in the development environment, so only `make lock-check` sees their requirements:
# onnxruntime-gpu would overwrite onnxruntime's files.
NOT_INSTALLED = r"onnxruntime-gpu|nvidia-.+"


class Pin(NamedTuple):
    """One package of a lock."""

    requirement: Requirement
    hashes: list[str]

    @property
    def version(self) -> Version:
        (specifier,) = self.requirement.specifier
        assert specifier.operator == "=="
        return Version(specifier.version)


def uncommented(path: Path) -> str:
    return re.sub(r"(?m)^\s*#.*\n", "", path.read_text(encoding="utf-8"))


def locked(name: str) -> dict[str, Pin]:
    pins = {}
    text = uncommented(ROOT / f"requirements/{name}.txt").replace("\\\n", " ")
    for line in text.splitlines():
        first, *hashes = (part.strip() for part in line.split("--hash="))
        requirement = Requirement(first)
        pins[canonicalize_name(requirement.name)] = Pin(requirement, hashes)
    return pins


def omitted() -> set[str]:
    return {
        canonicalize_name(name) for name in uncommented(ROOT / "requirements/omitted.txt").split()
    }


def project_requirements(extras: tuple[str, ...]) -> list[Requirement]:
    """The project's requirements with these extras, nested extras included."""
    optional = PROJECT["project"]["optional-dependencies"]
    texts = [*PROJECT["project"]["dependencies"], *(text for e in extras for text in optional[e])]
    requirements = []
    for requirement in map(Requirement, texts):
        if requirement.name == PROJECT["project"]["name"]:
            requirements += project_requirements(tuple(requirement.extras))
        else:
            requirements.append(requirement)
    return requirements


def requirements_of(pin: Pin) -> list[Requirement]:
    """A package's requirements in an image, from the installed package of the same version."""
    if pin.requirement.marker and not pin.requirement.marker.evaluate(IMAGE):
        return []
    try:
        installed = distribution(pin.requirement.name)
    except PackageNotFoundError:
        assert re.fullmatch(NOT_INSTALLED, pin.requirement.name), f"install {pin.requirement}"
        return []
    assert Version(installed.version) == pin.version, pin.requirement
    needs = map(Requirement, installed.requires or ())
    return [need for need in needs if need.marker is None or need.marker.evaluate(IMAGE)]


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_pinned_and_hashed(lock: str) -> None:
    pins = locked(lock)
    assert len(pins) > 30
    for name, pin in pins.items():
        assert pin.version, name
        assert pin.hashes, f"{name} has no hash"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", known) for known in pin.hashes), name


@pytest.mark.parametrize(
    "path", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda p: p.name
)
def test_locks_name_no_index(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"://|--(extra-)?index|--find-links|(?<![\w.])/\w", text)


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_agrees_with_the_constraints(lock: str) -> None:
    constraints = map(Requirement, uncommented(ROOT / "constraints.txt").split())
    pins = locked(lock)
    both = [c for c in constraints if canonicalize_name(c.name) in pins]
    assert len(both) > 30
    for constraint in both:
        assert pins[canonicalize_name(constraint.name)].version in constraint.specifier, constraint


@pytest.mark.parametrize(("lock", "extras"), LOCKS.items())
def test_lock_contains_the_requirements_of_its_extras(lock: str, extras: tuple[str, ...]) -> None:
    pins = locked(lock)
    needs = project_requirements(extras)
    if lock == "build":
        needs += map(Requirement, PROJECT["build-system"]["requires"])
    assert len(needs) > 15
    for need in needs:
        assert pins[canonicalize_name(need.name)].version in need.specifier, need


@pytest.mark.parametrize("lock", LOCKS)
def test_lock_contains_the_requirements_of_its_packages(lock: str) -> None:
    pins = locked(lock)
    allowed = omitted() if lock != "build" else set()
    needs = {name: requirements_of(pin) for name, pin in pins.items()}
    assert sum(map(len, needs.values())) > 30
    for name, requirements in needs.items():
        for need in requirements:
            package = canonicalize_name(need.name)
            assert package in allowed or pins[package].version in need.specifier, f"{name}: {need}"


def test_cpu_and_gpu_have_the_same_versions() -> None:
    cpu, gpu = locked("cpu"), locked("gpu")
    assert {cpu[name].version for name in cpu.keys() & gpu.keys()}
    assert all(cpu[name].version == gpu[name].version for name in cpu.keys() & gpu.keys())
    assert cpu["onnxruntime"].version == gpu["onnxruntime-gpu"].version


def test_service_runs_without_the_omitted_packages() -> None:
    assert omitted()
    assert not omitted() & {*locked("cpu"), *locked("gpu")}
    missing = [name.replace("-", "_") for name in omitted()]
    code = f"import sys; sys.modules.update(dict.fromkeys({missing})); import lattemix.cli, app.run"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_torch_is_in_no_lock() -> None:
    """Builds for CUDA and CPU have the same version and different hashes."""
    assert not [lock for lock in LOCKS if "torch" in locked(lock)]
