"""Checkpoints: a resumed run ends with the same weights as one that was never stopped."""

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

_ADAM = ("step", "exp_avg", "exp_avg_sq")  # Adam's state of each parameter


@dataclass(frozen=True)
class TrainingCheckpoint:
    """The checkpoint of one run, identified by its settings, backbone and corpus."""

    directory: Path
    identity: Mapping[str, Any]
    every: int = 200  # steps between checkpoints

    @property
    def path(self) -> Path:
        """The checkpoint file."""
        return self.directory / CHECKPOINT

    def save(self, step: int, vae: TokenVAE, adam: torch.optim.Adam) -> None:
        """Save the state before `step`, atomically."""
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
        """Load the checkpoint, if there is one; return the step to resume at."""
        if not self.path.is_file():
            return 0
        try:
            with safe_open(self.path, framework="pt") as file:
                metadata = file.metadata()
                tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (OSError, SafetensorError) as error:
            raise LatteMixError(
                f"{self.path} is damaged ({error}): start over with --restart."
            ) from error
        self._check(json.loads(metadata["identity"]))
        vae.load_state_dict({name: tensors[f"model.{name}"] for name in vae.state_dict()})
        for name, parameter in vae.named_parameters():
            moments = {part: tensors[f"{part}.{name}"].to(parameter) for part in _ADAM[1:]}
            adam.state[parameter] = {"step": tensors[f"step.{name}"], **moments}
        return int(metadata["step"])

    def _check(self, saved: Mapping[str, Any]) -> None:
        """Reject the checkpoint of another run."""
        differences = [
            f"{key} (then {_short(saved.get(key))}, now {_short(self.identity.get(key))})"
            for key in sorted({*saved, *self.identity})
            if saved.get(key) != self.identity.get(key)
        ]
        if differences:
            raise LatteMixError(
                f"{self.path} belongs to a run with different settings: {', '.join(differences)}. "
                "Restore them to resume, choose another --out, or start over with --restart."
            )


def _short(value: object) -> str:
    return f"{value[:12]}…" if isinstance(value, str) and len(value) > 40 else str(value)
