"""Spearman's correlation with human judgement on STSb: mixtures beside pooling and controls."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from app.similarity import similarity
from model_store import LatteMixError, Metric
from training.head import Floats, Head, rounded

METRICS: tuple[Metric, ...] = get_args(Metric)


@dataclass(frozen=True)
class Pairs:
    """Two lists of sentences and how alike people found them."""

    a: list[str]
    b: list[str]
    gold: list[float]


def read_stsb(path: Path) -> Pairs:
    """Read an `sts-{train,dev,test}.csv`: tab-separated, score and sentences in columns 5 to 7."""
    pairs = Pairs([], [], [])
    try:
        # Not splitlines: a sentence may hold other characters that count as line ends there.
        lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
    except OSError as error:
        raise LatteMixError(f"Cannot read {path}: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise LatteMixError(f"{path} is not UTF-8 text: {error}.") from error
    for number, line in enumerate(lines, start=1):
        columns = line.split("\t")  # quotes are text here, so not the csv module
        try:
            pairs.gold.append(float(columns[4]))
            pairs.a.append(columns[5])
            pairs.b.append(columns[6])
        except (IndexError, ValueError):
            raise LatteMixError(
                f"{path}, line {number}: expected a score and two sentences in columns 5 to 7."
            ) from None
    return pairs


def mixture_scores(
    head: Head, a: Sequence[Floats], b: Sequence[Floats], gold: Sequence[float]
) -> dict[str, float]:
    """Spearman x100 of every metric, from the token vectors [T, H] of each sentence."""
    left = np.stack([head.mixture(tokens) for tokens in a])
    right = np.stack([head.mixture(tokens) for tokens in b])
    return served_scores(left, right, head.tensors.get("centre"), gold)


def served_scores(
    left: Floats, right: Floats, centre: Floats | None, gold: Sequence[float]
) -> dict[str, float]:
    """Spearman x100 of every metric, from mixtures [N, L, C] however they were made."""
    metrics = [metric for metric in METRICS if metric != "centred" or centre is not None]
    return {m: spearman(similarity(m, left, right, centre), gold) for m in metrics}


def pooling_scores(
    head: Head, a: Sequence[Floats], b: Sequence[Floats], gold: Sequence[float]
) -> dict[str, float]:
    """Spearman x100 of cosine after the usual poolings, and after subtracting the token mean."""
    mean = head.tensors["mean"]
    poolings: dict[str, Callable[[Floats], Floats]] = {
        "mean": lambda tokens: tokens.mean(axis=0),
        "max": lambda tokens: tokens.max(axis=0),
        "cls": lambda tokens: tokens[0],
        "centred mean": lambda tokens: tokens.mean(axis=0) - mean,
    }
    scores = {}
    for name, pool in poolings.items():
        left, right = np.stack([*map(pool, a)]), np.stack([*map(pool, b)])
        product = (left * right).sum(axis=1)
        scores[name] = spearman(
            product / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1), gold
        )
    return scores


def random_control(head: Head, seed: int = 0) -> Head:
    """The same head with an encoder nobody trained, initialised as torch would, and no centre."""
    rng = np.random.default_rng(seed)
    tensors = {name: tensor for name, tensor in head.tensors.items() if name != "centre"}
    for index, (weight, bias) in enumerate(head.encoder):
        bound = 1 / np.sqrt(weight.shape[1])
        for kind, like in (("weight", weight), ("bias", bias)):
            values = rng.uniform(-bound, bound, like.shape).astype(np.float32)
            tensors[f"encoder.{index}.{kind}"] = rounded(values)
    return Head(head.spec, tensors)


def spearman(scores: NDArray[np.floating], gold: Sequence[float]) -> float:
    """Spearman's rank correlation, x100."""
    return round(100 * float(spearmanr(scores, gold).statistic), 2)
