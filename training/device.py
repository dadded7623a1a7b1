"""Where training runs: this process's GPU if there is one, and its place among its fellows."""

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import distributed


def device() -> torch.device:
    """The GPU that torchrun (or accelerate) gave this process, the first one, or the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))


def autocast(where: torch.device) -> AbstractContextManager[object]:
    """Mixed precision on a GPU, in bfloat16, which has float32's range; float32 on the CPU."""
    return torch.autocast(where.type, dtype=torch.bfloat16, enabled=where.type == "cuda")


@dataclass(frozen=True)
class Workers:
    """The processes that one `torchrun` or `accelerate launch` started; usually just this one."""

    rank: int = 0
    count: int = 1

    @classmethod
    def join(cls) -> "Workers":
        """Find the others, if the launcher's environment says that there are any."""
        count = int(os.environ.get("WORLD_SIZE", 1))
        if count > 1 and not distributed.is_initialized():
            distributed.init_process_group("gloo")  # only barriers are needed, on any device
        return cls(int(os.environ.get("RANK", 0)), count)

    @property
    def is_first(self) -> bool:
        """Whether this is the process that trains, and speaks."""
        return self.rank == 0

    def wait(self) -> None:
        """Return when every process has come this far."""
        if self.count > 1:
            distributed.barrier()
