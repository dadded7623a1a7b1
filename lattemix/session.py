"""An artifact's graph in ONNX Runtime, checked against its manifest."""

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from lattemix import cuda
from lattemix.settings import Provider
from model_store import Artifact, ArtifactError, LatteMixError
from model_store.choice import Device

_EXECUTION_PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": cuda.PROVIDER,
}

# Key of a tensor stored in another file. Our own graphs do not contain the word, so searching the
# bytes suffices: no need to parse the protobuf.
_EXTERNAL_DATA_KEY = b"location"


class ProviderError(LatteMixError):
    """The requested device is not available."""


class Session:
    """Runs the graph: `input_ids`, `attention_mask` [B, S], `pool` [B, G, S] -> [B, G, L, C].

    Texts must be padded on the right: graphs in fp16 read only their lengths from the mask.
    """

    def __init__(
        self,
        artifact: Artifact,
        provider: Provider = "auto",
        threads: int = 0,
        device_id: int = 0,
        spinning: bool = False,
    ) -> None:
        """Load the graph.

        Args:
            artifact: the model.
            provider: the device.
            threads: intra-op threads; 0 lets ONNX Runtime choose.
            device_id: the GPU's number.
            spinning: let threads busy-wait for each other during a run: faster, but uses the cores.
        """
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        # Batches have many shapes; a memory pattern for each would only use memory.
        options.enable_mem_pattern = False
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
        options.add_session_config_entry("session.force_spinning_stop", "1")  # between runs
        options.log_severity_level = 3
        providers = execution_providers(provider, device_id)
        _check_external_data(artifact)
        # On a CPU, addition and layer norm are several times faster than the fused operator.
        on_cpu = providers == [_EXECUTION_PROVIDERS["cpu"]]
        disabled = ["SkipLayerNormFusion"] if on_cpu else None
        try:
            self._session = ort.InferenceSession(
                artifact.model,
                options,
                providers=providers,
                disabled_optimizers=disabled,
                enable_fallback=provider == "auto",
            )
        except Exception as error:  # ONNX Runtime's errors share no public base
            if provider == "cuda" and cuda.is_failure(error):
                raise ProviderError(_cuda_failure(" ".join(str(error).split()))) from error
            raise ArtifactError(f"ONNX Runtime cannot load {artifact.model}: {error}.") from error
        self.provider = _provider_in_use(self._session, provider)
        _check_signature(self._session, artifact)
        self._bound: cuda.BoundSession | None = None
        if self.provider == "cuda":
            self._bound = cuda.BoundSession(self._session, cuda.pinned_memory(device_id))

    def run(
        self,
        input_ids: NDArray[np.int64],
        attention_mask: NDArray[np.int64],
        pool: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """Return the mixtures of one padded batch."""
        feeds: dict[str, NDArray[Any]] = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "pool": pool,
        }
        if self._bound is not None:
            return self._bound.run(feeds)
        (mixture,) = self._session.run(["mixture"], feeds)
        return mixture  # type: ignore[no-any-return]


def execution_providers(provider: Provider, device_id: int) -> list[Any]:
    """Return ONNX Runtime's preference list: the device, then the CPU for operators it lacks.

    Raises:
        ProviderError: this ONNX Runtime was built without the provider.
    """
    if provider != "cpu":
        # ONNX Runtime warns of the lack of a plug-in for CUDA, which it has built in.
        ort.set_default_logger_severity(3)
        ort.preload_dlls()  # CUDA and cuDNN from their wheels; none in a build for the CPU
    available = ort.get_available_providers()
    if provider == "auto":
        provider = likely_device(provider)
    name = _EXECUTION_PROVIDERS[provider]
    if name not in available:
        raise ProviderError(
            f"Provider {provider!r} was requested, but this ONNX Runtime has only "
            f"{', '.join(available)}: install lattemix[gpu] instead of lattemix[cpu], or set "
            "LATTEMIX_PROVIDER=cpu."
        )
    return [name] if provider == "cpu" else [cuda.options(device_id), _EXECUTION_PROVIDERS["cpu"]]


def likely_device(provider: Provider) -> Device:
    """Device that a model will run on, if it can be started there."""
    if provider == "auto":
        return "cuda" if cuda.PROVIDER in ort.get_available_providers() else "cpu"
    return provider


def usable_cores(quota: Path = Path("/sys/fs/cgroup/cpu.max")) -> int:
    """Number of cores this process may use, by affinity and container quota."""
    bound = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
    try:
        share, period = map(int, quota.read_text(encoding="ascii").split())
    except (OSError, ValueError):  # no quota, or "max"
        return len(bound)
    return max(1, min(len(bound), -(-share // period)))


def _provider_in_use(session: ort.InferenceSession, requested: Provider) -> str:
    """Provider of a session; ONNX Runtime falls back to the CPU with only a warning."""
    name = session.get_providers()[0]
    used = next(key for key, value in _EXECUTION_PROVIDERS.items() if value == name)
    if requested not in ("auto", used):
        raise ProviderError(_cuda_failure(f"it fell back to {used!r}"))
    return used


def _cuda_failure(reason: str) -> str:
    return (
        f"Provider 'cuda' was requested, but ONNX Runtime could not start it: {reason}. It needs "
        f"{cuda.requirements()}. LATTEMIX_PROVIDER=auto falls back to the CPU."
    )


def _check_external_data(artifact: Artifact) -> None:
    """Reject a graph with external data: ONNX Runtime would read files that are not verified."""
    with (
        artifact.model.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        external = content.find(_EXTERNAL_DATA_KEY) >= 0
    if external:
        raise ArtifactError(
            f"{artifact.model} stores tensors in other files, which its manifest does not list: "
            "assemble the model again with `lattemix build`."
        )


def _check_signature(session: ort.InferenceSession, artifact: Artifact) -> None:
    """Reject a graph whose inputs or outputs differ from the contract and the manifest."""
    inputs = {node.name: (node.type, len(node.shape)) for node in session.get_inputs()}
    expected = {
        "input_ids": ("tensor(int64)", 2),
        "attention_mask": ("tensor(int64)", 2),
        "pool": ("tensor(float)", 3),
    }
    if inputs != expected:
        raise ArtifactError(
            f"{artifact.model} has inputs {inputs}, not {expected} as the contract says."
        )
    outputs = {node.name: node.shape[2:] for node in session.get_outputs()}
    promised = {"mixture": [artifact.manifest.latent_dims, artifact.manifest.classes]}
    if outputs != promised:
        raise ArtifactError(
            f"{artifact.model} has outputs {outputs}, not {promised} (latent_dims, classes) as its "
            "manifest says."
        )
