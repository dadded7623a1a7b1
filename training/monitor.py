"""The figures of a run: progress, a log, and a warning when the latent collapses."""

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from training.events import Events
from training.progress import progress_bar
from training.vae import Autoencoder, CategoricalVAE, Loss, TokenVAE

LOG = "log.jsonl"

_EVERY = 20  # steps between entries
_SCORES = 10  # dev scores in a run, beside the last
_FIGURES = ("loss", "reconstruction", "kl", "dims_in_use", "classes_in_use")
_INFORMATIVE = 0.05  # nats: a latent dim that tells less about its token is idle

Figures = dict[str, float]
Entry = dict[str, Any]  # a line of the log: the step, its figures, and what is known only of some
Score = Callable[[TokenVAE], float]


class Monitor:
    """Follows a run from `start` to `steps`."""

    def __init__(
        self,
        start: int,
        steps: int,
        directory: Path | None,
        progress: bool,
        score: Score | None = None,
        events: Path | None = None,
    ) -> None:
        """Begin to watch.

        Args:
            start: the first step of this process, the one it resumes with.
            steps: the length of the run.
            directory: where the log goes; nowhere if unset.
            progress: whether to show progress.
            score: how good the encoder is by now, measured ten times in a run and at its end.
            events: where TensorBoard's events go; nowhere if unset.
        """
        self._steps, self._warned = steps, False
        self._log = directory / LOG if directory else None
        self._score = score
        self._dev: Entry = {}  # the last score, shown until there is another
        self._events = Events(events, start) if events else None
        self._bar = progress_bar("Training", "steps", total=steps, start=start, shown=progress)
        self._tokens, self._since = 0, time.perf_counter()
        self.figures: Figures = {}
        if self._log:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            if earlier := _forget(self._log, start):  # a run saved at its last step logs no other
                self.figures = {name: earlier[-1][name] for name in _FIGURES if name in earlier[-1]}

    def step(self, step: int, vae: TokenVAE, code: Tensor, loss: Loss, beta: float) -> None:
        """Take note of a finished step."""
        self._tokens += len(code)
        if step % _EVERY == 0 or step + 1 == self._steps:
            self._measure(step, vae, code, loss, beta)
        self._bar.update()

    def _measure(self, step: int, vae: TokenVAE, code: Tensor, loss: Loss, beta: float) -> None:
        """Compute an entry of the log and show it."""
        speed = self._tokens / max(time.perf_counter() - self._since, 1e-9)
        code = code.detach().float()
        parts = zip(_FIGURES[:3], loss, strict=True)
        self.figures = {name: round(part.item(), 4) for name, part in parts}
        self.figures |= latent_figures(vae, code)
        entry = {"step": step, **self.figures, "beta": beta, "tokens_per_second": round(speed)}
        self._show({**entry, **kl_per_dim(vae, code), **self._scored(step, vae)})
        self._warn(step, vae)
        self._tokens, self._since = 0, time.perf_counter()  # now: what was shown took time as well

    def close(self) -> None:
        """End the progress and the events."""
        self._bar.close()
        if self._events:
            self._events.close()

    def _scored(self, step: int, vae: TokenVAE) -> Entry:
        """The dev score, in the first entry of each tenth of the run and in the last."""
        tenth, before = (_SCORES * at // self._steps for at in (step, step - _EVERY))
        if not self._score or (tenth == before and step + 1 < self._steps):
            return {}
        score = self._score(vae)
        # Spearman is NaN when all scores are equal; JSON has no NaN, so store null.
        self._dev = {"dev": round(score, 2) if math.isfinite(score) else None}
        return self._dev

    def _show(self, entry: Entry) -> None:
        self._bar.set_postfix(_short(entry | self._dev), refresh=False)
        if self._events:
            self._events.write(entry)
        if self._log:
            with self._log.open("a", encoding="utf-8") as log:
                log.write(json.dumps(entry) + "\n")

    def _warn(self, step: int, vae: TokenVAE) -> None:
        problem = collapse(self.figures, vae.latent_dims)
        if self._warned or step < self._steps / 5 or not problem:
            return
        self._warned = True
        message = f"Warning: the latent is collapsing. At step {step} {problem}"
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


@torch.no_grad()
def kl_per_dim(vae: TokenVAE, code: Tensor) -> Entry:
    """The KL of each latent dim, in nats, where there is a prior to diverge from."""
    if isinstance(vae, Autoencoder):
        return {}
    return {"kl_per_dim": [round(kl, 3) for kl in vae.kl(code).mean(dim=0).tolist()]}  # [L]


def collapse(figures: Mapping[str, float], latent_dims: int) -> str | None:
    """What is wrong and what to change, if fewer than half of the latent dims are in use."""
    in_use = figures.get("dims_in_use", math.inf)
    if in_use >= latent_dims / 2:
        return None
    return (
        f"only {in_use:.0f} of {latent_dims} latent dims say anything about their token. Raise "
        "free_bits, lower learning_rate, use fewer encoder_layers, or normalise by "
        "centre-equal-norm."
    )


def read_log(path: Path) -> list[Entry]:
    """The entries of a log; a line that was cut short when the run was killed is none."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.is_file() else []
    return [json.loads(line) for line in lines if line.endswith("\n")]


def _forget(log: Path, start: int) -> list[Entry]:
    """Drop the entries of steps that will be done again; return the others."""
    earlier = [entry for entry in read_log(log) if entry["step"] < start]
    log.write_text("".join(json.dumps(entry) + "\n" for entry in earlier), encoding="utf-8")
    return earlier


def _short(entry: Entry) -> dict[str, str]:
    """An entry in a few words, to fit beside a bar."""
    shown = {
        "loss": f"{entry['loss']:.1f}",
        "rec": f"{entry['reconstruction']:.1f}",
        "kl": f"{entry['kl']:.1f}",
    }
    if "kl_per_dim" in entry:
        shown |= {"kl/dim": f"{median(entry['kl_per_dim']):.2f}"}
        shown |= {"dims": f"{entry['dims_in_use']:.0f}"}
    if "classes_in_use" in entry:
        shown |= {"classes": f"{entry['classes_in_use']:.1f}"}
    if entry.get("dev") is not None:
        shown |= {"dev": f"{entry['dev']:.1f}"}
    return shown | {"tokens/s": f"{entry['tokens_per_second']:,}"}
