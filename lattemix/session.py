"""The exported graph in ONNX Runtime, checked against its manifest, on the device asked for."""

import mmap
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from lattemix.settings import Provider
from model_store import Artifact, ArtifactError, LatteMixError, Manifest
from model_store.choice import Device

_EXECUTION_PROVIDERS = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "tensorrt": "TensorrtExecutionProvider",
}

# The key under which a graph says in which other file a tensor's numbers are. None of ours has the
# word, and what is around it could be written in several ways.
_ELSEWHERE = b"location"


class ProviderError(LatteMixError):
    """The device asked for is not there."""


class Session:
    """Runs the graph: `input_ids`, `attention_mask` [B, S], `pool` [B, G, S] -> [B, G, L, C]."""

    def __init__(
        self,
        artifact: Artifact,
        provider: Provider = "auto",
        threads: int = 0,
        device_id: int = 0,
        spinning: bool = False,
    ) -> None:
        """`spinning` threads wait for each other busily, and so for less long, while one runs."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        # Batches come in many shapes; a pattern planned for each would only hold memory.
        options.enable_mem_pattern = False
        # Between runs, at the least, the cores are for others.
        options.add_session_config_entry("session.intra_op.allow_spinning", str(int(spinning)))
        options.add_session_config_entry("session.force_spinning_stop", "1")
        options.log_severity_level = 3
        wanted = _providers(provider, device_id)
        _check_whole(artifact)
        # On a CPU a sum and a norm are several times faster than the operator that does both.
        apart = ["SkipLayerNormFusion"] if wanted == [_EXECUTION_PROVIDERS["cpu"]] else None
        try:
            self._session = ort.InferenceSession(
                artifact.model, options, providers=wanted, disabled_optimizers=apart
            )
        except Exception as error:  # ONNX Runtime's errors share no public base
            raise ArtifactError(f"ONNX Runtime cannot load {artifact.model}: {error}.") from error
        self.provider = _in_use(self._session, provider)
        _check_signature(self._session, artifact)

    def run(
        self,
        input_ids: NDArray[np.int64],
        attention_mask: NDArray[np.int64],
        pool: NDArray[np.float32],
    ) -> NDArray[np.float32]:
        """Return the mixtures of one padded batch."""
        feeds = {"input_ids": input_ids, "attention_mask": attention_mask, "pool": pool}
        (mixture,) = self._session.run(["mixture"], feeds)
        return mixture  # type: ignore[no-any-return]


def _providers(provider: Provider, device_id: int) -> list[Any]:
    """ONNX Runtime's preference list: the device asked for, then the CPU for stray operators."""
    if provider in ("cuda", "tensorrt", "auto") and hasattr(ort, "preload_dlls"):
        _preload_cuda()
    available = ort.get_available_providers()
    if provider == "auto":
        provider = "cuda" if _EXECUTION_PROVIDERS["cuda"] in available else "cpu"
    name = _EXECUTION_PROVIDERS[provider]
    if name not in available:
        raise ProviderError(
            f"Provider {provider!r} was asked for, but this ONNX Runtime has only "
            f"{', '.join(available)}: install lattemix[gpu] instead of lattemix[cpu], or set "
            "LATTEMIX_PROVIDER=cpu."
        )
    if provider == "cpu":
        return [name]
    # TensorRT leaves our fused operators to CUDA; the CPU is for what neither takes.
    on_gpu = dict.fromkeys([name, _EXECUTION_PROVIDERS["cuda"]])
    return [*((name, {"device_id": device_id}) for name in on_gpu), _EXECUTION_PROVIDERS["cpu"]]


def likely_device(provider: Provider) -> Device:
    """Where a model will run, as far as can be told without trying."""
    if provider == "auto":
        return "cuda" if _EXECUTION_PROVIDERS["cuda"] in ort.get_available_providers() else "cpu"
    return "cpu" if provider == "cpu" else "cuda"


def _preload_cuda() -> None:
    """Load CUDA and cuDNN from their wheels, where `onnxruntime-gpu` is installed."""
    if _EXECUTION_PROVIDERS["cuda"] in ort.get_available_providers():
        ort.preload_dlls()


def _in_use(session: ort.InferenceSession, asked: Provider) -> str:
    """The provider that really runs; ONNX Runtime falls back to the CPU with only a warning."""
    name = session.get_providers()[0]
    used = next(key for key, value in _EXECUTION_PROVIDERS.items() if value == name)
    if asked not in ("auto", used):
        raise ProviderError(
            f"Provider {asked!r} was asked for, but ONNX Runtime could not start it and fell back "
            f"to {used!r}: check the GPU driver, or set LATTEMIX_PROVIDER=auto."
        )
    return used


def _check_whole(artifact: Artifact) -> None:
    """Refuse a graph that would have ONNX Runtime read files that no manifest vouches for."""
    with (
        artifact.model.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        whole = content.find(_ELSEWHERE) < 0
    if not whole:
        raise ArtifactError(
            f"{artifact.model} keeps numbers in other files, for which its manifest does not "
            "vouch: assemble the model again with `lattemix build`."
        )


def _check_signature(session: ort.InferenceSession, artifact: Artifact) -> None:
    """Refuse a graph whose inputs or output are not the ones its manifest promises."""
    inputs = {node.name: (node.type, len(node.shape)) for node in session.get_inputs()}
    expected = {
        "input_ids": ("tensor(int64)", 2),
        "attention_mask": ("tensor(int64)", 2),
        "pool": ("tensor(float)", 3),
    }
    if inputs != expected:
        raise ArtifactError(
            f"{artifact.model} takes {inputs}, not {expected} as the contract says."
        )
    (output, *rest) = session.get_outputs()
    found, promised = [output.name, *output.shape[2:]], _promised(artifact.manifest)
    if rest or found != promised:
        raise ArtifactError(
            f"{artifact.model} gives {found[0]} of shape {found[1:]} per sentence, but its "
            f"manifest says {promised[0]} of shape {promised[1:]} (latent_dims, classes)."
        )


def _promised(manifest: Manifest) -> list[str | int]:
    return ["mixture", manifest.latent_dims, manifest.classes]
