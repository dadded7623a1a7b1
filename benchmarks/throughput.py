"""Sentences per second of our engine and of sentence-transformers, interleaved in one run.

Both read the same backbone (all-MiniLM-L6-v2) and the same sentences; ours also computes the
mixtures. Rounds alternate so that a noisy machine is noisy for both, and the ratio is taken
within each round.
"""

import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

from app.engine import Encoder
from app.settings import load_settings
from training.backbones.sources import open_backbone

BACKBONE = "all-MiniLM-L6-v2"
ROUNDS = 5
COUNT = 1024
RESULTS = Path(__file__).parent / "results"

VOCABULARY = (
    "a the man woman child dog market river old red quickly runs eats builds sells under over "
    "with without near because while two three city music paper water light morning evening"
)


def sentences(seed: int) -> list[str]:
    """Distinct word salads of 4 to 28 words, about as long as the sentences of STS."""
    rng, words = np.random.default_rng(seed), VOCABULARY.split()
    lengths = np.clip(rng.normal(12, 5, COUNT).astype(int), 4, 28)
    return [" ".join(rng.choice(words, length)) for length in lengths]


def rate(encode: Callable[[Sequence[str]], object], texts: Sequence[str]) -> float:
    """Sentences per second."""
    start = time.perf_counter()
    encode(texts)
    return len(texts) / (time.perf_counter() - start)


def main() -> None:
    """Run the comparison, print it and keep it in `benchmarks/results/`."""
    engines = {p: Encoder.load(load_settings(model=f"default:{p}")) for p in ("fp32", "int8")}
    with open_backbone(BACKBONE) as checkpoint:
        peer = SentenceTransformer(str(checkpoint.directory), device="cpu")  # with mean pooling
    contestants: dict[str, Callable[[Sequence[str]], object]] = {
        **{f"lattemix engine, {p}": engine.encode for p, engine in engines.items()},
        "sentence-transformers": lambda texts: peer.encode(list(texts), batch_size=32),
    }
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for encode in contestants.values():
        rate(encode, sentences(seed=0))
    for round_number in range(1, ROUNDS + 1):
        texts = sentences(seed=round_number)  # new ones, so that nothing is remembered
        for name, encode in contestants.items():
            rates[name].append(rate(encode, texts))

    *ours, theirs = rates
    ratios = {
        name: [a / b for a, b in zip(rates[name], rates[theirs], strict=True)] for name in ours
    }
    print(f"{COUNT} sentences, {ROUNDS} interleaved rounds: median (lowest to highest)")
    for name, values in rates.items():
        print(f"{name:<24} {_spread(values, '.0f')} sentences/s")
    for name, values in ratios.items():
        print(f"{name:<24} {_spread(values, '.2f')} times {theirs}")
    RESULTS.mkdir(exist_ok=True)
    record = {
        "machine": platform.processor() or platform.machine(),
        "rates": rates,
        "ratios": ratios,
    }
    (RESULTS / "throughput.json").write_text(json.dumps(record, indent=2) + "\n")


def _spread(values: list[float], form: str) -> str:
    low, middle, high = min(values), statistics.median(values), max(values)
    return f"{middle:{form}} ({low:{form}} to {high:{form}})"


if __name__ == "__main__":
    main()
