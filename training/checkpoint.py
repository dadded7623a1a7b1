"""A run on disk, so that one that was killed ends as if it had not been."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from model_store import LatteMixError
from training.output import CHECKPOINT
from training.vae import TokenVAE

_ADAM = ("step", "exp_avg", "exp_avg_sq")  # what Adam remembers of each parameter


@dataclass(frozen=True)
class Run:
    """Where a run keeps its state, and what makes it this run and no other."""

    directory: Path
    identity: Mapping[str, Any]  # every setting, and the digests of backbone and corpus
    every: int = 200  # steps between checkpoints

    @property
    def path(self) -> Path:
        """The checkpoint."""
        return self.directory / CHECKPOINT

    def save(self, step: int, vae: TokenVAE, adam: torch.optim.Adam) -> None:
        """Keep the state before `step`, whole or not at all."""
        tensors = {f"model.{name}": tensor for name, tensor in vae.state_dict().items()}
        for name, parameter in vae.named_parameters():
            for part in _ADAM:
                tensors[f"{part}.{name}"] = adam.state[parameter][part]
        metadata = {"step": str(step), "identity": json.dumps(self.identity)}
        new = self.path.with_suffix(".new")
        self.directory.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, new, metadata)
        new.replace(self.path)

    def restore(self, vae: TokenVAE, adam: torch.optim.Adam) -> int:
        """Load what an earlier run kept, if there is anything; return the step to go on with."""
        if not self.path.is_file():
            return 0
        try:
            with safe_open(self.path, framework="pt") as file:
                metadata = file.metadata()
                tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise LatteMixError(
                f"{self.path} is damaged ({error}): begin anew with --restart."
            ) from error
        self._check(json.loads(metadata["identity"]))
        vae.load_state_dict({name: tensors[f"model.{name}"] for name in vae.state_dict()})
        for name, parameter in vae.named_parameters():
            kept = {part: tensors[f"{part}.{name}"] for part in _ADAM}
            moments = {part: kept[part].to(parameter) for part in _ADAM[1:]}
            adam.state[parameter] = {"step": kept["step"], **moments}
        return int(metadata["step"])

    def _check(self, found: Mapping[str, Any]) -> None:
        """Refuse to go on with another run's state."""
        other = [
            f"{key} (then {_short(found.get(key))}, now {_short(self.identity.get(key))})"
            for key in sorted({*found, *self.identity})
            if found.get(key) != self.identity.get(key)
        ]
        if other:
            raise LatteMixError(
                f"{self.path} is of a run with another {', '.join(other)}. It was left as it is: "
                "restore what changed to go on, choose another --out, or begin anew with --restart."
            )


def _short(value: object) -> str:
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 40 else str(value)
