import dataclasses

import onnxruntime
import pytest

from lattemix import cuda
from lattemix.session import ProviderError, Session
from model_store import Artifact, ArtifactError, Store


def test_rejects_a_graph_whose_shape_differs_from_the_manifest(artifact: Artifact) -> None:
    manifest = artifact.manifest.model_copy(update={"latent_dims": 8})
    message = r"outputs {'mixture': \[4, 5\]}, not {'mixture': \[8, 5\]} .* as its manifest says"
    with pytest.raises(ArtifactError, match=message):
        Session(dataclasses.replace(artifact, manifest=manifest), provider="cpu")


def test_rejects_a_graph_with_other_inputs(private_store: Store) -> None:
    import onnx

    artifact = private_store.open("tiny")
    model = onnx.load(artifact.model)
    model.graph.input[2].name = "weights"
    for node in model.graph.node:
        node.input[:] = ["weights" if name == "pool" else name for name in node.input]
    onnx.save(model, artifact.model)
    with pytest.raises(ArtifactError, match=r"'weights': .*, not .* as the contract says"):
        Session(artifact, provider="cpu")


def test_rejects_a_graph_with_external_data(private_store: Store) -> None:
    import onnx

    artifact = private_store.open("tiny")
    model = onnx.load(artifact.model)
    options = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    onnx.save(model, artifact.model, **options)
    assert (artifact.path / "weights.bin").stat().st_size > 0
    with pytest.raises(ArtifactError, match=r"model\.onnx stores tensors in other files"):
        Session(artifact, provider="cpu")


def test_rejects_a_file_that_is_not_a_graph(private_store: Store) -> None:
    artifact = private_store.open("tiny")
    artifact.model.write_bytes(b"not a graph")
    with pytest.raises(ArtifactError, match=r"ONNX Runtime cannot load .*model\.onnx"):
        Session(artifact, provider="cpu")


def test_rejects_cuda_when_it_is_not_available(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(ProviderError, match=r"'cuda' was requested.*install lattemix\[gpu\]"):
        Session(artifact, provider="cuda")
    assert Session(artifact, provider="auto").provider == "cpu"


def test_rejects_a_silent_fallback_to_the_cpu(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    # onnxruntime-gpu without a driver lists CUDA but uses the CPU.
    available = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    start = onnxruntime.InferenceSession

    def fall_back(path, options, providers, **others):
        assert providers == [cuda.options(1), "CPUExecutionProvider"]
        return start(path, options, providers=["CPUExecutionProvider"])

    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: available)
    monkeypatch.setattr(onnxruntime, "preload_dlls", lambda: None, raising=False)
    monkeypatch.setattr(onnxruntime, "InferenceSession", fall_back)
    message = "could not start it: it fell back to 'cpu'.*driver.*compute capability"
    with pytest.raises(ProviderError, match=message):
        Session(artifact, provider="cuda", device_id=1)


@pytest.mark.parametrize(
    "reason",
    [
        "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version",
        "CUDNN failure 1001: CUDNN_STATUS_NOT_INITIALIZED",
        "CUBLAS failure 1: CUBLAS_STATUS_NOT_INITIALIZED",
    ],
)
def test_reports_why_cuda_could_not_be_started(
    reason: str, artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:

    def fail(path, options, enable_fallback, **others):
        assert not enable_fallback  # it would print the reason and use the CPU
        raise RuntimeError(reason)

    available = ["CUDAExecutionProvider", "CPUExecutionProvider"]
    monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: available)
    monkeypatch.setattr(onnxruntime, "InferenceSession", fail)
    with pytest.raises(
        ProviderError, match=rf"{reason}\. It needs an NVIDIA driver of version 580"
    ):
        Session(artifact, provider="cuda")
