"""The training loop: batches of token vectors in, a trained VAE out."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from model_store import LatteMixError
from training.checkpoint import Run
from training.device import autocast, device
from training.interrupt import Interrupted, uninterrupted
from training.monitor import Figures, Monitor, Score
from training.objective import Loss, negative_elbo
from training.recipe import Recipe
from training.schedule import BETA, learning_rate
from training.vae import MODELS, TokenVAE


def train(
    batch: Callable[[int], Tensor],
    hidden_size: int,
    recipe: Recipe,
    steps: int,
    run: Run | None = None,
    progress: bool = True,
    score: Score | None = None,
    events: Path | None = None,
) -> tuple[TokenVAE, Figures]:
    """Fit a VAE to normalised token vectors; the same for the same seed, however often resumed.

    `Interrupted` is raised between two steps, after a checkpoint was saved.

    Args:
        batch: the token vectors [T, H] of a step.
        hidden_size: H.
        recipe: the settings.
        steps: how long to train.
        run: keeps checkpoints and the log, and goes on from what it kept; none if unset.
        progress: whether to show progress.
        score: how good the encoder is by now; looked at ten times, and changes nothing.
        events: where TensorBoard's events go; nowhere if unset.
    """
    where = device()
    torch.manual_seed(recipe.seed)  # the initial weights
    vae = MODELS[recipe.model](hidden_size, recipe).to(where)
    adam = torch.optim.Adam(vae.parameters())
    start = done = run.restore(vae, adam) if run else 0
    log = run.directory if run else None
    monitor = Monitor(start, steps, log, progress, score, events)
    try:
        for step in range(start, steps):
            tokens = batch(step).to(where, torch.float32)  # [T, H]
            if not len(tokens):
                continue  # none of these sentences has a word that static vectors know
            with uninterrupted():
                code, loss = _update(vae, adam, tokens, recipe, step, steps)
                done = step + 1
                monitor.step(step, vae, code, loss, _beta(recipe, step, steps))
                if run and (done % run.every == 0 or done == steps):
                    run.save(done, vae, adam)
    except Interrupted:
        if run and done > start:
            run.save(done, vae, adam)
        raise
    finally:
        monitor.close()
    return vae.cpu(), monitor.figures


def _update(
    vae: TokenVAE,
    adam: torch.optim.Adam,
    tokens: Tensor,
    recipe: Recipe,
    step: int,
    steps: int,
) -> tuple[Tensor, Loss]:
    """Take one step of the optimiser; return the code [T, L, *] and the loss."""
    with autocast(tokens.device):
        code, reconstruction = vae(tokens, _noise(recipe.seed, step, tokens.device))
    kl = vae.kl(code.float())
    beta = _beta(recipe, step, steps)
    loss = negative_elbo(tokens, reconstruction.float(), kl, beta, recipe.free_bits)
    if not torch.isfinite(loss.total):
        raise LatteMixError(
            f"The loss is {loss.total.item()} at step {step}: lower learning_rate"
            f" (it is {recipe.learning_rate:g}) or normalise by centre-equal-norm."
        )
    for group in adam.param_groups:
        group["lr"] = _rate(recipe, step, steps)
    adam.zero_grad()
    loss.total.backward()
    adam.step()
    return code, loss


def _beta(recipe: Recipe, step: int, steps: int) -> float:
    return BETA[recipe.beta_schedule](step, steps)


def _noise(seed: int, step: int, where: torch.device) -> torch.Generator:
    """A step's own randomness, so that no generator's state need be kept."""
    return torch.Generator(where).manual_seed((seed << 32) + step)


def _rate(recipe: Recipe, step: int, steps: int) -> float:
    return learning_rate(
        recipe.learning_rate_schedule,
        step,
        steps,
        recipe.learning_rate,
        recipe.learning_rate_floor,
        recipe.warmup,
    )
