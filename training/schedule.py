"""How the learning rate and the KL weight move over a run: pure functions of the step."""

from collections.abc import Callable

_CYCLES = 4


def linear_warmup_decay(step: int, steps: int, warmup: float) -> float:
    """Rise linearly to 1 over the first `warmup` share of the steps, then fall linearly to 0."""
    rising = max(1, round(warmup * steps))
    if step < rising:
        return (step + 1) / rising
    return max(0.0, (steps - step) / max(1, steps - rising))


def linear_annealing(step: int, steps: int) -> float:
    """The paper's KL weight beta: from 0 at the first step to 1 at the last."""
    return step / max(1, steps - 1)


def cyclical_annealing(step: int, steps: int) -> float:
    """Four times over: from 0 to 1 in half a cycle, then 1 for the other half."""
    cycle = steps / _CYCLES
    return min(1.0, 2 * (step % cycle) / cycle)


def constant(step: int, steps: int) -> float:
    """Always 1."""
    return 1.0


BETA: dict[str, Callable[[int, int], float]] = {
    "linear": linear_annealing,
    "cyclical": cyclical_annealing,
    "constant": constant,
}


def learning_rate(
    name: str, step: int, steps: int, peak: float, floor: float, warmup: float
) -> float:
    """The learning rate of a step: `linear` from `floor` to `peak` and back, or `constant`."""
    if name == "constant":
        return peak
    return floor + (peak - floor) * linear_warmup_decay(step, steps, warmup)
