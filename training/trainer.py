"""The training loop: an objective in, a trained model out."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from model_store import LatteMixError
from training.checkpoint import TrainingCheckpoint
from training.device import device
from training.interrupt import Interrupted, uninterrupted
from training.monitor import Figures, Monitor, ScoreFunction
from training.objectives import Objective, Outcome
from training.recipe import Recipe
from training.vae import TokenVAE

_CYCLES = 4


def train(
    objective: Objective[Any],
    recipe: Recipe,
    steps: int,
    run: TrainingCheckpoint | None = None,
    progress: bool = True,
    score: ScoreFunction | None = None,
    events: Path | None = None,
) -> tuple[TokenVAE, Figures]:
    """Fit a model by its objective; resuming does not change the result.

    `Interrupted` is raised between two steps, after a checkpoint is saved.

    Args:
        objective: the model and the loss of every step.
        recipe: the settings, except for the number of steps.
        steps: length of the run.
        run: checkpoint and log of the run, from which it resumes.
        progress: whether to show progress.
        score: computes the dev score of the model.
        events: directory of TensorBoard events.
    """
    vae = objective.vae.to(device())
    adam = torch.optim.Adam(vae.parameters())
    start = done = run.restore(vae, adam) if run else 0
    monitor = Monitor(start, steps, run.directory if run else None, progress, score, events)
    update: Outcome | None = None
    try:
        for step in range(start, steps):
            batch = objective.batch(step)
            with uninterrupted():
                beta = BETA[recipe.beta_schedule](step, steps, recipe.beta_warmup)
                for group in adam.param_groups:
                    group["lr"] = learning_rate(recipe, step, steps)
                # No tokens: no word of the batch is in the vocabulary of static vectors. The step
                # is logged with the figures of the last update, so that the log is complete.
                if batch is not None:
                    update = objective.evaluate(batch, step, beta)
                    _apply(update, adam, recipe, step)
                    vae.constrain()
                done = step + 1
                if update:
                    monitor.step(step, vae, update, beta)
                if run and adam.state and (done % run.every == 0 or done == steps):
                    run.save(done, vae, adam)
    except Interrupted:
        if run and adam.state and done > start:
            run.save(done, vae, adam)
        raise
    finally:
        monitor.close()
    return vae.cpu(), monitor.figures


def _apply(update: Outcome, adam: torch.optim.Adam, recipe: Recipe, step: int) -> None:
    """Take one optimiser step."""
    if not torch.isfinite(update.loss):
        raise LatteMixError(
            f"The loss is {update.loss.item()} at step {step}: lower learning_rate"
            f" (it is {recipe.learning_rate:g}) or normalise by centre-equal-norm."
        )
    adam.zero_grad()
    update.loss.backward()
    adam.step()


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


def linear_annealing(step: int, steps: int, warmup: float) -> float:
    """Rise linearly from 0 to 1 over the `warmup` share of the steps, then stay at 1."""
    return min(1.0, step / max(1.0, warmup * (steps - 1)))


def cyclical_annealing(step: int, steps: int, warmup: float) -> float:
    """Four cycles: 0 to 1 over the first half of a cycle, then 1; `warmup` has no effect."""
    cycle = steps / _CYCLES
    return min(1.0, 2 * (step % cycle) / cycle)


BETA: dict[str, Callable[[int, int, float], float]] = {
    "linear": linear_annealing,
    "cyclical": cyclical_annealing,
    "constant": lambda step, steps, warmup: 1.0,
}
