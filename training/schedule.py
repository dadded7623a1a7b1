"""How the learning rate and the KL weight move over a run: pure functions of the step."""


def linear_warmup_decay(step: int, steps: int, warmup: float) -> float:
    """Rise linearly to 1 over the first `warmup` share of the steps, then fall linearly to 0."""
    rising = max(1, round(warmup * steps))
    if step < rising:
        return (step + 1) / rising
    return max(0.0, (steps - step) / max(1, steps - rising))


def linear_annealing(step: int, steps: int) -> float:
    """The KL weight beta: from 0 at the first step to 1 at the last."""
    return step / max(1, steps - 1)
