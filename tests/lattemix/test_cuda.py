"""CUDA without a GPU: what can be checked on a CPU."""

import numpy as np
import onnxruntime as ort
import pytest

from lattemix import cuda
from lattemix.cuda import BoundSession
from model_store import Artifact

RNG = np.random.default_rng(1)


def feeds(rows: int, length: int) -> dict[str, np.ndarray]:
    pool = RNG.random((rows, 2, length)).astype(np.float32)
    ids = RNG.integers(0, 10, (rows, length))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "pool": pool}


@pytest.fixture(scope="module")
def session(artifact: Artifact) -> ort.InferenceSession:
    return ort.InferenceSession(artifact.model, providers=["CPUExecutionProvider"])


def test_bound_session_gives_the_same_mixtures_as_a_plain_run(
    session: ort.InferenceSession,
) -> None:
    bound = BoundSession(session, memory=None)
    # Larger and smaller than the buffers of the run before.
    for batch in (feeds(2, 5), feeds(3, 9), feeds(1, 4)):
        (expected,) = session.run(["mixture"], batch)
        np.testing.assert_array_equal(bound.run(batch), expected)


def test_bound_session_takes_arrays_that_are_not_contiguous(session: ort.InferenceSession) -> None:
    batch = feeds(3, 4)
    batch["pool"] = np.broadcast_to(np.eye(4, dtype=np.float32), (3, 4, 4))
    (expected,) = session.run(["mixture"], batch)
    np.testing.assert_array_equal(BoundSession(session, memory=None).run(batch), expected)


def test_result_does_not_change_with_the_next_run(session: ort.InferenceSession) -> None:
    bound = BoundSession(session, memory=None)
    first = bound.run(feeds(2, 5))
    copy = first.copy()
    bound.run(feeds(2, 5))
    np.testing.assert_array_equal(first, copy)


def test_buffers_are_kept_between_runs(session: ort.InferenceSession) -> None:
    bound = BoundSession(session, memory=None)
    bound.run(feeds(4, 8))
    addresses = {name: buffer.data_ptr() for name, buffer in bound._buffers.items()}
    bound.run(feeds(2, 8))
    assert {name: buffer.data_ptr() for name, buffer in bound._buffers.items()} == addresses


@pytest.mark.parametrize(
    ("version", "driver", "capability"), [("13.0", "580", "7.5"), ("12.8", "525", "6.0")]
)
def test_requirements_name_driver_and_compute_capability(
    version: str, driver: str, capability: str
) -> None:
    text = cuda.requirements(version)
    assert f"driver of version {driver} or newer (CUDA {version}" in text
    assert f"compute capability {capability} or higher" in text


def test_requirements_of_an_unknown_cuda_name_its_version() -> None:
    assert "CUDA 99.1" in cuda.requirements("99.1")


def test_options_leave_out_tf32_and_attention_by_cudnn() -> None:
    name, options = cuda.options(1)
    assert name == "CUDAExecutionProvider"
    assert options["device_id"] == 1
    assert options["use_tf32"] == 0
    kernels = options["sdpa_kernel"]
    assert kernels & 4  # TensorRT's fused attention, for the lengths that the fp16 graph has
    assert not kernels & 8  # cuDNN's


def test_tells_failures_of_cuda_from_those_of_the_model() -> None:
    assert cuda.is_failure(RuntimeError("CUDNN failure 1001: CUDNN_STATUS_NOT_INITIALIZED"))
    assert not cuda.is_failure(RuntimeError("Load model failed: protobuf parsing failed."))
