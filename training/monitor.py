"""What a run shows of itself: figures, a progress bar, a log, and a warning when it collapses."""

import json
import math
import sys
import time
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from training.objective import Loss
from training.vae import Autoencoder, CategoricalVAE, TokenVAE

LOG = "log.jsonl"

_EVERY = 20  # steps between entries
_INFORMATIVE = 0.05  # nats: a latent dim that tells less about its token is idle

Figures = dict[str, float]


class Monitor:
    """Follows a run from `start` to `steps`."""

    def __init__(self, start: int, steps: int, directory: Path | None, progress: bool) -> None:
        self._steps, self._warned = steps, False
        self._log = directory / LOG if directory else None
        self._bar = tqdm(
            total=steps,
            initial=start,
            desc="Training",
            unit="step",
            disable=None if progress else True,
        )
        self._tokens, self._since = 0, time.perf_counter()
        self.figures: Figures = {}
        if self._log:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            _forget(self._log, start)

    def step(self, step: int, vae: TokenVAE, code: Tensor, loss: Loss, beta: float) -> None:
        """Take note of a finished step."""
        self._tokens += len(code)
        self._bar.update()
        if step % _EVERY and step + 1 < self._steps:
            return
        speed = self._tokens / max(time.perf_counter() - self._since, 1e-9)
        self._tokens, self._since = 0, time.perf_counter()
        names = ("loss", "reconstruction", "kl")
        self.figures = {n: round(part.item(), 4) for n, part in zip(names, loss, strict=True)}
        self.figures |= latent_figures(vae, code.detach().float())
        shown = {name: f"{value:.1f}" for name, value in self.figures.items()}
        self._bar.set_postfix(shown | {"tokens/s": f"{speed:,.0f}"})
        if self._log:
            entry = {"step": step, **self.figures, "beta": beta, "tokens_per_second": round(speed)}
            with self._log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(entry) + "\n")
        self._warn(step, vae)

    def close(self) -> None:
        """Leave the bar as it stands."""
        self._bar.close()

    def _warn(self, step: int, vae: TokenVAE) -> None:
        in_use = self.figures.get("dims_in_use", math.inf)
        if self._warned or step < self._steps / 5 or in_use >= vae.latent_dims / 2:
            return
        self._warned = True
        message = (
            f"Warning: the latent is collapsing. At step {step} only {in_use:.0f} of "
            f"{vae.latent_dims} latent dims say anything about their token. Raise free_bits, lower "
            "learning_rate, use fewer encoder_layers, or normalise by centre-equal-norm."
        )
        tqdm.write(message, file=sys.stderr)


@torch.no_grad()
def latent_figures(vae: TokenVAE, code: Tensor) -> Figures:
    """How many latent dims carry information, and how many classes of one are used.

    A dim of a categorical VAE is idle both when it is always uniform (the KL vanished) and when
    it always says the same class; the information between token and class tells either.
    """
    if isinstance(vae, Autoencoder):
        return {}  # it has no prior to collapse to
    if not isinstance(vae, CategoricalVAE):
        return {"dims_in_use": float((vae.kl(code).mean(dim=0) > _INFORMATIVE).sum())}
    usage = code.softmax(dim=-1).mean(dim=0)  # [L, C]
    spread = -(usage * usage.clamp(min=1e-12).log()).sum(dim=-1)  # [L], entropy of the usage
    certainty = vae.kl(code).mean(dim=0) - math.log(code.shape[-1])  # [L], minus mean entropy
    information = spread + certainty
    return {
        "dims_in_use": float((information > _INFORMATIVE).sum()),
        "classes_in_use": round(spread.exp().mean().item(), 2),  # perplexity, mean over dims
    }


def _forget(log: Path, start: int) -> None:
    """Drop the entries of steps that will be done again."""
    if log.is_file():
        lines = log.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if line.endswith("\n") and json.loads(line)["step"] < start]
        log.write_text("".join(kept), encoding="utf-8")
