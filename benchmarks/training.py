"""Training tokens per second: encoded once, against a loop that runs the backbone every step.

Both do the same steps of the default recipe on the same sentences, in turns, so that a noisy
machine is noisy for both; the ratio is taken within each round.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.texts import BACKBONE, sentences
from training.backbones import load, open_backbone
from training.cache import VectorCache
from training.corpus import prepare
from training.pipeline import Encoded
from training.recipe import RECIPES, Recipe
from training.trainer import train

ROUNDS, STEPS = 5, 32


def main() -> None:
    """Run the comparison and print it."""
    recipe = Recipe.load(RECIPES / "default.toml")
    with tempfile.TemporaryDirectory() as temporary, open_backbone(BACKBONE) as checkpoint:
        place = Path(temporary)
        backbone = load(checkpoint, recipe.max_tokens)
        corpus = prepare(sentences(0), place / "corpus")
        cached = Encoded(backbone, corpus, VectorCache(place / "cache")).batches(recipe)
        size, texts = recipe.batch_sentences, corpus.shard(0)
        cached(0)  # encodes the corpus, once

        def naive(step: int) -> Tensor:
            start = step * size % len(texts)
            return torch.from_numpy(backbone.encode(texts[start : start + size]).vectors)

        def from_cache(step: int) -> Tensor:
            return torch.from_numpy(cached(step).vectors.astype("float32"))

        rates: dict[str, list[float]] = {"encoded once": [], "backbone every step": []}
        for _ in range(ROUNDS):
            for name, batch in zip(rates, (from_cache, naive), strict=True):
                rates[name].append(_rate(batch, backbone.hidden_size, recipe))
    for name, values in rates.items():
        print(f"{name:<22} {statistics.median(values):8,.0f} tokens/s")
    ratios = [once / every for once, every in zip(*rates.values(), strict=True)]
    print(
        f"{'ratio':<22} {statistics.median(ratios):8.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    )


def _rate(batch: Callable[[int], Tensor], hidden_size: int, recipe: Recipe) -> float:
    """Tokens per second over some steps."""
    tokens = 0

    def counted(step: int) -> Tensor:
        nonlocal tokens
        found = batch(step)
        tokens += len(found)
        return found

    start = time.perf_counter()
    train(counted, hidden_size, recipe, STEPS, progress=False)
    return tokens / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
