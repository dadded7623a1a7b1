"""The training loop: batches of token vectors in, a trained VAE out."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from model_store import LatteMixError
from training.checkpoint import TrainingCheckpoint
from training.device import autocast, device
from training.interrupt import Interrupted, uninterrupted
from training.monitor import Figures, Monitor, ScoreFunction
from training.recipe import Recipe
from training.vae import MODELS, Loss, TokenVAE, negative_elbo

_CYCLES = 4


def train(
    batch: Callable[[int], Tensor],
    hidden_size: int,
    recipe: Recipe,
    steps: int,
    run: TrainingCheckpoint | None = None,
    progress: bool = True,
    score: ScoreFunction | None = None,
    events: Path | None = None,
) -> tuple[TokenVAE, Figures]:
    """Fit a VAE to normalised token vectors; resuming does not change the result.

    `Interrupted` is raised between two steps, after a checkpoint is saved.

    Args:
        batch: returns the token vectors [T, H] of a step.
        hidden_size: H.
        recipe: the settings, except for the number of steps.
        steps: length of the run.
        run: checkpoint and log of the run, from which it resumes.
        progress: whether to show progress.
        score: computes the dev score of the VAE.
        events: directory of TensorBoard events.
    """
    target = device()
    torch.manual_seed(recipe.seed)  # the initial weights
    vae = MODELS[recipe.model](hidden_size, recipe).to(target)
    adam = torch.optim.Adam(vae.parameters())
    start = done = run.restore(vae, adam) if run else 0
    monitor = Monitor(start, steps, run.directory if run else None, progress, score, events)
    update: tuple[Tensor, Loss] | None = None
    try:
        for step in range(start, steps):
            tokens = batch(step).to(target, torch.float32)  # [T, H]
            with uninterrupted():
                beta = BETA[recipe.beta_schedule](step, steps)
                for group in adam.param_groups:
                    group["lr"] = learning_rate(recipe, step, steps)
                # No tokens: no word of the batch is in the vocabulary of static vectors. The step
                # is logged with the figures of the last update, so that the log is complete.
                if len(tokens):
                    update = _update(vae, adam, tokens, recipe, step, beta)
                done = step + 1
                if update:
                    monitor.step(step, vae, *update, beta)
                if run and adam.state and (done % run.every == 0 or done == steps):
                    run.save(done, vae, adam)
    except Interrupted:
        if run and adam.state and done > start:
            run.save(done, vae, adam)
        raise
    finally:
        monitor.close()
    return vae.cpu(), monitor.figures


def _update(
    vae: TokenVAE, adam: torch.optim.Adam, tokens: Tensor, recipe: Recipe, step: int, beta: float
) -> tuple[Tensor, Loss]:
    """Take one optimiser step; return the code [T, L, *] and the loss."""
    # A generator per step: checkpoints need no generator state.
    noise = torch.Generator(tokens.device).manual_seed((recipe.seed << 32) + step)
    with autocast(tokens.device):
        code, reconstruction = vae(tokens, noise)
    kl = vae.kl(code.float())
    loss = negative_elbo(tokens, reconstruction.float(), kl, beta, recipe.free_bits)
    if not torch.isfinite(loss.total):
        raise LatteMixError(
            f"The loss is {loss.total.item()} at step {step}: lower learning_rate"
            f" (it is {recipe.learning_rate:g}) or normalise by centre-equal-norm."
        )
    adam.zero_grad()
    loss.total.backward()
    adam.step()
    return code, loss


def learning_rate(recipe: Recipe, step: int, steps: int) -> float:
    """The learning rate of a step."""
    peak, floor = recipe.learning_rate, recipe.learning_rate_floor
    if recipe.learning_rate_schedule == "constant":
        return peak
    return floor + (peak - floor) * linear_warmup_decay(step, steps, recipe.warmup)


def linear_warmup_decay(step: int, steps: int, warmup: float) -> float:
    """Rise linearly to 1 over the first `warmup` share of the steps, then fall linearly to 0."""
    rising = max(1, round(warmup * steps))
    if step < rising:
        return (step + 1) / rising
    return max(0.0, (steps - step) / max(1, steps - rising))


def linear_annealing(step: int, steps: int) -> float:
    """The paper's KL weight beta: 0 at the first step, 1 at the last."""
    return step / max(1, steps - 1)


def cyclical_annealing(step: int, steps: int) -> float:
    """Four cycles: 0 to 1 over the first half of a cycle, then 1."""
    cycle = steps / _CYCLES
    return min(1.0, 2 * (step % cycle) / cycle)


BETA: dict[str, Callable[[int, int], float]] = {
    "linear": linear_annealing,
    "cyclical": cyclical_annealing,
    "constant": lambda step, steps: 1.0,
}
