"""Choose the precision of a model for a device."""

from typing import Literal, NamedTuple

from model_store.manifest import MAX_DROP, Artifact, Precision
from model_store.store import Store

Device = Literal["cpu", "cuda"]

FASTEST: dict[Device, Precision] = {"cpu": "int8", "cuda": "fp16"}


class Choice(NamedTuple):
    """An artifact, and why its precision was chosen."""

    artifact: Artifact
    reason: str


def choose(store: Store, reference: str, device: Device) -> Choice:
    """Open `name:precision`, or `name` in the best precision for the device.

    On CUDA that is fp16, unless its measured loss exceeds the limit; on a CPU int8, if its loss was
    measured and is within the limit; otherwise the first available of fp32, fp16 and int8.
    """
    name, _, requested = reference.partition(":")
    if requested:
        return Choice(store.open(reference), "it was requested")
    fast, available = FASTEST[device], store.precisions(name)
    if fast not in available:
        return Choice(store.open(name), f"the store has no {fast} artifact")
    artifact = store.open(f"{name}:{fast}")
    drop, limit = artifact.manifest.drop, MAX_DROP[fast]
    reason = f"the loss of {fast} was not measured"
    if drop is not None:
        reason = f"{fast} loses {drop:.2f} points on STSb dev (limit {limit})"
        if drop <= limit:  # false for NaN
            return Choice(artifact, reason)
    if len(available) == 1:
        return Choice(artifact, "it is the only precision in the store")
    if drop is None and device == "cuda":
        return Choice(artifact, "it is the fastest on a GPU")
    fallback = next(precision for precision in available if precision != fast)  # fp32 comes first
    return Choice(store.open(f"{name}:{fallback}"), reason)
