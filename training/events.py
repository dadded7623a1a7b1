"""A run's figures as TensorBoard reads them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from model_store import LatteMixError


class Events:
    """Writes entries of the log into `directory`, in the place of those from `start` on."""

    def __init__(self, directory: Path, start: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(directory), purge_step=start)

    def write(self, entry: Mapping[str, Any]) -> None:
        """Every number as a scalar, every list as a histogram; now, for it may be looked at."""
        for name, value in entry.items():
            if isinstance(value, list):
                self._writer.add_histogram(name, np.array(value), entry["step"])
            elif name != "step" and value is not None:
                self._writer.add_scalar(name, value, entry["step"])
        self._writer.flush()

    def close(self) -> None:
        """Nothing more comes."""
        self._writer.close()


def require_tensorboard() -> None:
    """Raise if it is not installed."""
    try:
        import tensorboard  # noqa: F401
    except ImportError as error:
        raise LatteMixError(
            "--tensorboard needs TensorBoard: pip install 'lattemix[tensorboard]'."
        ) from error
