"""The log of a training run: progress bar, log file, TensorBoard, collapse warning."""

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from model_store import LatteMixError
from training.objectives import Outcome
from training.progress import progress_bar
from training.vae import Autoencoder, CategoricalVAE, TokenVAE

LOG = "log.jsonl"

_INTERVAL = 20  # steps between log entries
_DEV_SCORES = 10  # dev scores in a run, besides the one at the last step
_FIGURES = ("loss", "teaching", "reconstruction", "kl", "dims_in_use", "classes_in_use")
_MIN_INFORMATION = 0.05  # nats; a latent dim with less is not in use

Figures = dict[str, float]
Entry = dict[str, Any]  # a line of the log; not every entry has every figure
ScoreFunction = Callable[[TokenVAE], float]


class Monitor:
    """Logs a run from step `start` to `steps`."""

    def __init__(
        self,
        start: int,
        steps: int,
        directory: Path | None,
        progress: bool,
        score: ScoreFunction | None = None,
        events: Path | None = None,
    ) -> None:
        """Open the progress bar, the log in `directory` and the TensorBoard log in `events`.

        A resumed run has `start` above 0. `score` computes the dev score, ten times in a run and
        at the end.
        """
        self._steps, self._warned = steps, False
        self._log = directory / LOG if directory else None
        self._score = score
        self._last_dev: Entry = {}  # shown on the bar until there is a new one
        self._tensorboard: Any = None
        if events:
            from torch.utils.tensorboard import SummaryWriter

            self._tensorboard = SummaryWriter(str(events), purge_step=start)
        self._bar = progress_bar("Training", "steps", total=steps, start=start, shown=progress)
        self._tokens, self._since = 0, time.perf_counter()
        self.figures: Figures = {}
        if self._log:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            # A run resumed after its last step logs nothing more: its figures are in the log.
            if entries := _truncate(self._log, start):
                self.figures = {name: entries[-1][name] for name in _FIGURES if name in entries[-1]}

    def step(self, step: int, vae: TokenVAE, outcome: Outcome, beta: float) -> None:
        """Record a finished step."""
        self._tokens += len(outcome.code)
        if step % _INTERVAL == 0 or step + 1 == self._steps:
            self._record(step, vae, outcome, beta)
        self._bar.update()

    def close(self) -> None:
        """Close the progress bar and the TensorBoard writer."""
        self._bar.close()
        if self._tensorboard:
            self._tensorboard.close()

    def _record(self, step: int, vae: TokenVAE, outcome: Outcome, beta: float) -> None:
        speed = self._tokens / max(time.perf_counter() - self._since, 1e-9)
        code = outcome.code.detach().float()
        parts = {"loss": outcome.loss, **outcome.parts}
        self.figures = {name: _digits(part.item()) for name, part in parts.items()}
        self.figures |= latent_figures(vae, code)
        entry = {"step": step, **self.figures, "beta": beta, "tokens_per_second": round(speed)}
        self._write({**entry, **_kl_per_dim(vae, code), **self._dev_score(step, vae)})
        problem = collapse(self.figures, vae.latent_dims)
        if problem and not self._warned and step >= self._steps / 5:
            self._warned = True
            message = f"Warning: the latent is collapsing. At step {step} {problem}"
            tqdm.write(message, file=sys.stderr)
        self._tokens, self._since = 0, time.perf_counter()  # excludes the time spent logging

    def _dev_score(self, step: int, vae: TokenVAE) -> Entry:
        """The dev score, in the first entry of each tenth of the run and in the last."""
        tenth, previous = (_DEV_SCORES * s // self._steps for s in (step, step - _INTERVAL))
        if not self._score or (tenth == previous and step + 1 < self._steps):
            return {}
        score = self._score(vae)
        # Spearman is NaN when all scores are equal; JSON has no NaN, so store null.
        self._last_dev = {"dev": round(score, 2) if math.isfinite(score) else None}
        return self._last_dev

    def _write(self, entry: Entry) -> None:
        self._bar.set_postfix(_postfix(entry | self._last_dev), refresh=False)
        if self._log:
            with self._log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(entry) + "\n")
        if not self._tensorboard:
            return
        for name, value in entry.items():
            if isinstance(value, list):
                self._tensorboard.add_histogram(name, np.array(value), entry["step"])
            elif name != "step" and value is not None:
                self._tensorboard.add_scalar(name, value, entry["step"])
        self._tensorboard.flush()  # so that a running TensorBoard shows it


def require_tensorboard() -> None:
    """Raise if TensorBoard is not installed."""
    try:
        import tensorboard  # noqa: F401
    except ImportError as error:
        raise LatteMixError(
            "--tensorboard needs TensorBoard: pip install 'lattemix[tensorboard]'."
        ) from error


@torch.no_grad()
def latent_figures(vae: TokenVAE, code: Tensor) -> Figures:
    """Count the latent dims that carry information, and the classes in use per dim.

    A dim of a categorical VAE is not in use if it is always uniform (the KL vanished) or always the
    same class; the mutual information of token and class is near 0 in both cases.
    """
    if isinstance(vae, Autoencoder):
        return {}  # it has no prior to collapse to
    if not isinstance(vae, CategoricalVAE):
        return {"dims_in_use": float((vae.kl(code).mean(dim=0) > _MIN_INFORMATION).sum())}
    usage = code.softmax(dim=-1).mean(dim=0)  # [L, C]
    spread = -(usage * usage.clamp(min=1e-12).log()).sum(dim=-1)  # [L], entropy of the usage
    certainty = vae.kl(code).mean(dim=0) - math.log(code.shape[-1])  # [L], minus mean entropy
    information = spread + certainty
    return {
        "dims_in_use": float((information > _MIN_INFORMATION).sum()),
        "classes_in_use": round(spread.exp().mean().item(), 2),  # perplexity, mean over dims
    }


@torch.no_grad()
def _kl_per_dim(vae: TokenVAE, code: Tensor) -> Entry:
    """The KL of each latent dim, in nats; an autoencoder has none."""
    if isinstance(vae, Autoencoder):
        return {}
    return {"kl_per_dim": [round(kl, 3) for kl in vae.kl(code).mean(dim=0).tolist()]}  # [L]


def collapse(figures: Mapping[str, float], latent_dims: int) -> str | None:
    """Describe a collapse and its remedies if fewer than half of the latent dims are in use."""
    in_use = figures.get("dims_in_use", math.inf)
    if in_use >= latent_dims / 2:
        return None
    return (
        f"only {in_use:.0f} of {latent_dims} latent dims carry information about their token. "
        "Raise free_bits, lower learning_rate, use fewer encoder_layers, or normalise by "
        "centre-equal-norm."
    )


def read_log(path: Path) -> list[Entry]:
    """Read the entries of a log; an incomplete last line of a killed run is ignored."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _digits(value: float) -> float:
    """Five significant digits: losses of different objectives differ by orders of magnitude."""
    return float(f"{value:.5g}")


def _truncate(log: Path, start: int) -> list[Entry]:
    """Remove the entries of steps that will be repeated; return the others."""
    entries = [entry for entry in read_log(log) if entry["step"] < start]
    log.write_text("".join(json.dumps(entry) + "\n" for entry in entries), encoding="utf-8")
    return entries


def _postfix(entry: Entry) -> dict[str, str]:
    """The figures of an entry that fit beside a progress bar."""
    kl_per_dim = entry.get("kl_per_dim")
    values = {
        "loss": (entry["loss"], ".3g"),
        "rec": (entry.get("reconstruction"), ".1f"),
        "kl": (entry.get("kl"), ".1f"),
        "kl/dim": (median(kl_per_dim) if kl_per_dim else None, ".2f"),
        "dims": (entry.get("dims_in_use"), ".0f"),
        "classes": (entry.get("classes_in_use"), ".1f"),
        "dev": (entry.get("dev"), ".1f"),
        "tokens/s": (entry["tokens_per_second"], ","),
    }
    return {
        name: format(value, form) for name, (value, form) in values.items() if value is not None
    }
