"""The device of this process, and the other processes of a `torchrun`."""

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import distributed


def device() -> torch.device:
    """The GPU that torchrun or accelerate assigned to this process, the first GPU, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


def autocast(target: torch.device) -> AbstractContextManager[object]:
    """Mixed precision in bfloat16 on a GPU, float32 on the CPU."""
    return torch.autocast(target.type, dtype=torch.bfloat16, enabled=target.type == "cuda")


@dataclass(frozen=True)
class Workers:
    """The processes started by one `torchrun` or `accelerate launch`; one without a launcher."""

    rank: int = 0
    count: int = 1

    @classmethod
    def join(cls) -> "Workers":
        """Join the process group that the environment describes, if any."""
        count = int(os.environ.get("WORLD_SIZE", 1))
        if count > 1 and not distributed.is_initialized():
            distributed.init_process_group("gloo")  # enough for barriers, and works on any device
        return cls(int(os.environ.get("RANK", 0)), count)

    @property
    def is_first(self) -> bool:
        """Whether this is the process that trains and prints."""
        return self.rank == 0

    def wait(self) -> None:
        """Wait for all processes to reach this point."""
        if self.count > 1:
            distributed.barrier()
