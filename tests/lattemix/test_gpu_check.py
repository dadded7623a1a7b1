"""`lattemix gpu-check`, with the CPU in a GPU's place."""

import functools
from collections import Counter
from pathlib import Path

import pytest

from lattemix import gpu_check
from lattemix.build.assemble import assemble
from lattemix.gpu_check import Check, Report, check_gpu
from lattemix.settings import ModelSettings
from model_store import LatteMixError, Store
from tests.lattemix.conftest import run


@pytest.fixture(scope="module")
def settings(
    head_directory: Path, backbone: Path, tmp_path_factory: pytest.TempPathFactory
) -> ModelSettings:
    """Settings of `tiny:fp16`, in a store that has `tiny:fp32` too."""
    root = tmp_path_factory.mktemp("gpu")
    assemble(head_directory, Store(root), "tiny", str(backbone), precisions=("fp32", "fp16"))
    return ModelSettings(store=root, model="tiny:fp16", token_budget=64)


@pytest.fixture(scope="module")
def report(settings: ModelSettings) -> Report:
    return check_gpu(settings, seconds=0, provider="cpu")


def test_checks_placement_and_parity(report: Report) -> None:
    assert [check.name for check in report.checks] == [
        "operators",
        "largest difference to fp32",
        "rank correlation with fp32",
    ]
    assert report.passed
    placement, difference, agreement = (check.result for check in report.checks)
    assert placement.endswith("on CPUExecutionProvider")
    assert 0 < float(difference.partition(" ")[0]) < 0.01
    assert 0.999 < float(agreement.partition(" ")[0]) <= 1


def test_measures_batches_of_new_sizes(report: Report) -> None:
    first, again = report.shapes
    assert first > 0
    assert again > 0
    assert f"took {first * 1000:.2f} ms, and {again * 1000:.2f} ms when repeated" in (
        report.markdown()
    )


def test_measures_each_length_with_several_batch_sizes(report: Report) -> None:
    sizes = [(speed.length, speed.rows) for speed in report.speeds]
    assert sizes == [(8, 1), (8, 8), (16, 1), (16, 4)]  # the model reads 16 tokens
    assert all(speed.sentences > 0 and speed.batch_seconds > 0 for speed in report.speeds)


def test_report_is_markdown(report: Report) -> None:
    lines = report.markdown().splitlines()
    assert lines[0].startswith("### tiny:fp16 on ")
    assert "| operators | passed |" in report.markdown()
    rows = [line for line in lines if line.startswith("|")]
    assert {row.count("|") for row in rows} == {3, 4, 6}
    assert sum(row.count("|") == 6 for row in rows) == 2 + len(report.speeds)


def test_operators_elsewhere_and_copies_fail(
    settings: ModelSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    placement = Counter(
        {
            ("CPUExecutionProvider", "MatMul"): 5,
            ("OtherExecutionProvider", "Gelu"): 2,
            ("CPUExecutionProvider", "MemcpyToHost"): 1,
        }
    )
    monkeypatch.setattr(gpu_check, "_placement", lambda *arguments: placement)
    report = check_gpu(settings, seconds=0, provider="cpu")
    assert not report.passed
    assert report.checks[0] == Check(
        "operators",
        False,
        "5 of 8 on CPUExecutionProvider; elsewhere or copies: 2 Gelu, 1 MemcpyToHost",
    )
    assert "| operators | **failed** |" in report.markdown()


def test_exits_with_1_if_a_check_fails(
    settings: ModelSettings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(gpu_check, "MAX_DIFFERENCE", 1e-9)
    monkeypatch.setattr(gpu_check, "check_gpu", functools.partial(check_gpu, provider="cpu"))
    arguments = ("--model", "tiny:fp16", "--store", str(settings.store), "--seconds", "0")
    code, out, err = run(capsys, "gpu-check", *arguments)
    assert code == 1
    assert "| largest difference to fp32 | **failed** |" in out
    assert err == ""


def test_fails_without_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    """Before the model is opened: this store has none."""
    code, out, err = run(capsys, "gpu-check", "--store", "nowhere")
    assert code == 1
    assert out == ""
    assert "Provider 'cuda' was requested, but this ONNX Runtime has only" in err
    assert "install lattemix[gpu]" in err


def test_needs_the_model_in_fp32(artifact_only_in_fp16: ModelSettings) -> None:
    with pytest.raises(LatteMixError, match="fp32"):
        check_gpu(artifact_only_in_fp16, seconds=0, provider="cpu")


@pytest.fixture
def artifact_only_in_fp16(head_directory: Path, backbone: Path, tmp_path: Path) -> ModelSettings:
    assemble(head_directory, Store(tmp_path), "tiny", str(backbone), precisions=("fp16",))
    return ModelSettings(store=tmp_path, model="tiny")


def test_describes_the_gpu_by_nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    arguments = tmp_path / "arguments"
    answer = "NVIDIA L4, 580.95.05, 8.9, 23034 MiB"
    program.write_text(f'#!/bin/sh\necho "$@" >{arguments}\necho "{answer}"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    environment = gpu_check._environment(0)
    assert environment["GPU"] == "NVIDIA L4"
    assert environment["driver"] == "580.95.05"
    assert environment["compute capability"] == "8.9"
    assert "--id=0" in arguments.read_text()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-6d2a")
    gpu_check._environment(1)
    assert "--id=GPU-6d2a" in arguments.read_text()
    program.write_text("#!/bin/sh\necho no devices were found\nexit 6\n")
    assert gpu_check._environment(0)["GPU"] == "unknown GPU (no nvidia-smi)"
