"""Learning curves: `python -m training.adapt.curve --pairs TRAIN.csv --test TEST.csv`.

Adapts a head to growing samples of labelled pairs, and scores it on test pairs, by
default those that share no sentence with any of the labels, beside mean pooling with a linear head.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn

import numpy as np
import typer
from typer import Option

from lattemix.build.backbones import TokenVectors
from lattemix.build.distill import open_origin
from lattemix.build.head import Head
from lattemix.failures import run_command
from lattemix.labelled.pairs import parse_scale, read_labelled
from training import backbones
from training.adapt.commands import head_directory, read_dev
from training.adapt.examples import Examples, Index, from_pairs, quality, sample, without
from training.adapt.learning import Learner
from training.adapt.selection import Selection, choose, margins
from training.cache import VectorCache
from training.evaluate.scores import encode
from training.evaluate.statistics import Scores
from training.options import notify

_LINEAR_STRENGTH = 3.0

Tests = Mapping[str, tuple[Examples, TokenVectors]]
cli = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Curve:
    """A head, labels to sample from, and test sets."""

    head: Head
    examples: Examples
    tokens: TokenVectors
    tests: Tests
    static: bool

    def point(self, size: int, seed: int) -> dict[str, object]:
        """Figures of one sample of labels: seconds, and the average quality on the tests."""
        indices = np.random.default_rng([seed, size]).permutation(len(self.examples))[:size]
        part, tokens = self._take(np.sort(indices))
        start = time.perf_counter()
        selection = Selection(self.head, part, tokens, self.static, seed)
        chosen = choose(selection.trials())
        head = self.head
        if chosen:
            head = selection.learn(chosen.capacity).apply(head, tokens)
        seconds = time.perf_counter() - start
        start = time.perf_counter()
        linear = self.linear(part, tokens)
        return {
            "labels": len(part),
            "seed": seed,
            "capacity": str(chosen.capacity) if chosen else "unadapted",
            "adapted": self.average(lambda e, t: margins(head, e, t)) if chosen else None,
            "seconds": round(seconds, 1),
            "linear": self.average(linear),
            "linear seconds": round(time.perf_counter() - start, 1),
        }

    def _take(self, indices: Index) -> tuple[Examples, TokenVectors]:
        used = np.unique(self.examples.rows[indices])
        return self.examples.take(indices), self.tokens.take(used)

    def linear(
        self, part: Examples, tokens: TokenVectors
    ) -> Callable[[Examples, TokenVectors], Scores]:
        """The cosine of mean pooling after a linear map, learned without selection."""
        raw = self._pooling()
        matrix = Learner(raw, part, tokens).matrix(np.arange(len(part)), _LINEAR_STRENGTH).matrix
        assert matrix is not None

        def score(examples: Examples, vectors: TokenVectors) -> Scores:
            return self.pooled(examples, vectors, matrix)

        return score

    def pooled(
        self, examples: Examples, tokens: TokenVectors, matrix: np.ndarray | None = None
    ) -> Scores:
        """The cosine of mean pooling, after a linear map if there is one: [N]."""
        means = Learner(self._pooling(), examples, tokens).means.numpy()
        mapped = means if matrix is None else means @ matrix.T
        units = mapped / np.maximum(np.linalg.norm(mapped, axis=1, keepdims=True), 1e-9)
        left, right = examples.pairs
        scores: Scores = np.vecdot(units[left], units[right]).astype(np.float64)
        return scores

    def _pooling(self) -> Head:
        """A head whose normalised vectors are those of mean pooling; its encoder is not used."""
        tensors = {k: v for k, v in self.head.tensors.items() if not k.startswith("weigh")}
        return Head(self.head.spec.model_copy(update={"normalisation": "none"}), tensors)

    def average(self, score: Callable[[Examples, TokenVectors], Scores]) -> float:
        """The mean quality over the tests."""
        values = [quality(e.quality_name, score(e, t), e.targets) for e, t in self.tests.values()]
        return round(float(np.mean(values)), 2)


@cli.command()
def curve(
    pairs: Annotated[Path, Option(help="Labelled pairs to sample from.")],
    test: Annotated[list[Path], Option(help="Labelled pairs to test on; repeatable.")],
    head: Annotated[str, Option(help="Directory of a head, or name of a shipped one.")] = "default",
    scale: Annotated[str | None, Option(help="Lowest and highest label.")] = None,
    sizes: Annotated[str, Option(help="Numbers of labels.")] = "20,50,200,1000,all",
    seeds: Annotated[int, Option(min=1, help="Samples per number of labels.")] = 3,
    keep_shared: Annotated[
        bool, Option("--keep-shared", help="Keep test pairs with a sentence of the labels.")
    ] = False,
) -> None:
    """Print the learning curve, one JSON object a line."""
    labelled = read_labelled(pairs, scale=parse_scale(scale))
    examples = sample(from_pairs(labelled), 20_000, seed=0)
    known = set[str]() if keep_shared else {*labelled.a, *labelled.b}
    sets, notes = without([read_dev(path) for path in test], known)
    for note in notes:
        notify(note)
    base, cache = Head.load(head_directory(head)), VectorCache()
    with open_origin(base.spec.backbone) as checkpoint:
        backbone = backbones.load(checkpoint, base.spec.max_tokens, base.spec.backbone.layer)
        tests = {name: (e, encode(backbone, cache, e.sentences)) for name, e in sets.items()}
        tokens = encode(backbone, cache, examples.sentences)
        run = Curve(base, examples, tokens, tests, checkpoint.is_static)
        start = {
            "unadapted": run.average(lambda e, t: margins(base, e, t)),
            "mean pooling": run.average(run.pooled),
            "pairs": {name: len(e) for name, e in sets.items()},
        }
        print(json.dumps(start), flush=True)
        for size in sizes.split(","):
            number = len(examples) if size == "all" else int(size)
            for seed in range(1 if size == "all" else seeds):
                print(json.dumps(run.point(number, seed)), flush=True)


def main() -> NoReturn:
    """Entry point."""
    run_command(cli, "training.adapt.curve")


if __name__ == "__main__":
    main()
