"""CUDA: requirements, and batches that pass through pinned memory."""

import math
import re
from collections.abc import Mapping
from threading import Lock
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import DTypeLike, NDArray

PROVIDER = "CUDAExecutionProvider"

# Kernels for attention, as bits of ONNX Runtime's `sdpa_kernel`: flash, memory-efficient, two of
# TensorRT, and the unfused one. Not cuDNN's (8), the default since compute capability 9.0: cuDNN
# plans every new pair of batch size and length for tens of milliseconds or more.
_ATTENTION_KERNELS = 1 | 2 | 4 | 32 | 16

# ONNX Runtime's wording of a library's error, such as "CUDNN failure 1001: ...".
_FAILURE = re.compile(r"\b(CUDA|CUDNN|CUBLAS) failure")

# CUDA's major version: oldest driver on Linux, lowest compute capability.
_REQUIREMENTS = {"12": ("525", "6.0"), "13": ("580", "7.5")}


def requirements(version: str | None = None) -> str:
    """Describe what this ONNX Runtime needs to use a GPU.

    Args:
        version: the CUDA version it was built for; default: its own.
    """
    version = version or getattr(ort, "cuda_version", "") or "13"
    driver, capability = _REQUIREMENTS.get(version.partition(".")[0], (None, None))
    if driver is None:
        return f"a GPU and an NVIDIA driver that support CUDA {version}"
    return (
        f"an NVIDIA driver of version {driver} or newer (CUDA {version}; see nvidia-smi) and a GPU "
        f"of compute capability {capability} or higher"
    )


def options(device_id: int) -> tuple[str, dict[str, Any]]:
    """Return the execution provider with its options."""
    # TF32 would round the inputs of float32 products to 10 bits: those of fp32 models, and the
    # mixtures of all models when they are pooled.
    return PROVIDER, {
        "device_id": device_id,
        "use_tf32": 0,
        "sdpa_kernel": _ATTENTION_KERNELS,
    }


def is_failure(error: Exception) -> bool:
    """Tell an error of CUDA and its libraries from one in the model."""
    return _FAILURE.search(str(error)) is not None


def pinned_memory(device_id: int) -> ort.OrtMemoryInfo:
    """Let ONNX Runtime allocate pinned memory, from which a GPU copies without a detour."""
    kind, place = ort.OrtAllocatorType.ORT_DEVICE_ALLOCATOR, ort.OrtMemType.CPU_OUTPUT
    memory = ort.OrtMemoryInfo("CudaPinned", kind, device_id, place)
    ort.create_and_register_allocator_v2(PROVIDER, memory, {}, ort.OrtArenaCfg({"max_mem": 0}))
    return memory


class BoundSession:
    """Runs a session's graph on buffers that are kept between runs. Thread-safe.

    The buffers grow to the largest batch. Runs wait for each other.
    """

    def __init__(self, session: ort.InferenceSession, memory: ort.OrtMemoryInfo | None) -> None:
        """Bind a session.

        Args:
            session: the session.
            memory: where to allocate the buffers; None is ordinary memory.
        """
        self._session = session
        self._memory = memory
        self._latent_shape: list[int] = session.get_outputs()[0].shape[2:]  # [L, C]
        self._buffers: dict[str, ort.OrtValue] = {}  # flat
        self._lock = Lock()

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the mixtures [B, G, L, C] of one padded batch."""
        shape = [*feeds["pool"].shape[:2], *self._latent_shape]
        with self._lock:
            binding = self._session.io_binding()
            for name, values in feeds.items():
                buffer = self._buffer(name, values.shape, values.dtype)
                np.copyto(buffer, values)
                binding.bind_cpu_input(name, buffer)
            output: NDArray[np.float32] = self._buffer("mixture", shape, np.float32)
            # Bound by its address: ONNX Runtime takes an OrtValue in pinned memory for one on the
            # GPU, and does not copy the result.
            address = output.ctypes.data
            binding.bind_output("mixture", "cpu", 0, np.float32, shape, address)
            self._session.run_with_iobinding(binding)
            binding.synchronize_outputs()
            return output.copy()

    def _buffer(
        self, name: str, shape: tuple[int, ...] | list[int], dtype: DTypeLike
    ) -> NDArray[Any]:
        """Return a view of a buffer, after replacing it if it is too small."""
        size = math.prod(shape)
        buffer = self._buffers.get(name)
        if buffer is None or buffer.shape()[0] < size:
            buffer = ort.OrtValue.ortvalue_from_shape_and_type(
                [size], np.dtype(dtype).type, memory_info=self._memory
            )
            self._buffers[name] = buffer
        view: NDArray[Any] = buffer.numpy()
        return view[:size].reshape(shape)
