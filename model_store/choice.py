"""Which precision of a model to serve, where nobody says."""

from typing import Literal, NamedTuple

from model_store.manifest import LARGEST_DROP, Artifact, Precision
from model_store.store import Store

Device = Literal["cpu", "cuda"]

_FAST: dict[Device, Precision] = {"cpu": "int8", "cuda": "fp16"}


class Choice(NamedTuple):
    """An artifact, and why it was chosen among those of its name."""

    artifact: Artifact
    reason: str


def choose(store: Store, reference: str, device: Device) -> Choice:
    """Open `name:precision` as asked, or of `name` what suits the device.

    That is fp16 on CUDA unless it was found to lose much, and int8 on a CPU if what it loses was
    measured and is little; else fp32.
    """
    name, _, asked = reference.partition(":")
    if asked:
        return Choice(store.open(reference), "it was asked for")
    fast, present = _FAST[device], store.precisions(name)
    if fast not in present:
        return Choice(store.open(name), f"the store has no {fast} of it")
    if len(present) == 1:
        return Choice(store.open(name), "the store has no other")
    artifact = store.open(f"{name}:{fast}")
    drop, most = artifact.manifest.drop, LARGEST_DROP[fast]
    if drop is None and device == "cuda":
        return Choice(artifact, "it is the fastest on a GPU")
    if drop is None:
        return Choice(_other(store, name, fast), f"what {fast} loses was not measured")
    lost = f"{fast} loses {drop:.2f} points on STSb dev"
    if not drop <= most:  # nor is what cannot be compared
        return Choice(_other(store, name, fast), f"{lost}, more than {most}")
    return Choice(artifact, f"{lost}, at most {most}")


def _other(store: Store, name: str, than: Precision) -> Artifact:
    others = [precision for precision in store.precisions(name) if precision != than]
    return store.open(f"{name}:{others[0]}")  # fp32, if it is there
