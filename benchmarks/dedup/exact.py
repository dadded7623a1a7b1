"""Compare what `lattemix dedup` finds with an exact search among the first rows of a corpus.

    python -m benchmarks.dedup.exact CORPUS RESULTS --rows 50000

Exact search computes the metric of all pairs of rows. `lattemix dedup` limits the matches of a
text on purpose, and compares texts with more matches again when it has dropped some, so that the
rows it drops count, more than the pairs it finds.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import lattemix
from benchmarks.dedup import corpus
from benchmarks.dedup.systems import LatteMix
from lattemix.bulk.dedup.groups import group
from lattemix.bulk.dedup.pairs import Floats, Ids, Pairs, join

_BLOCK = 4096


def main(
    directory: Annotated[Path, typer.Argument(metavar="CORPUS", exists=True)],
    results: Annotated[Path, typer.Argument(help="Directory to write.")],
    rows: Annotated[int, typer.Option(min=2, help="Rows to compare.")] = 50_000,
    threshold: Annotated[float, typer.Option(help="Score of duplicates.")] = 0.95,
) -> None:
    """Print the recall of pairs and of dropped rows."""
    texts = corpus.read(directory)[0][:rows]
    model = lattemix.load("fast")
    exact = exact_pairs(model.vectors(texts), np.arange(len(texts)), threshold)
    expected = ~group(exact, np.arange(len(texts)), "keeper").kept

    results.mkdir(parents=True, exist_ok=True)
    corpus.write(results, texts, [])
    system = LatteMix("exact")
    ((_, dropped),) = system.sweep(results / corpus.ROWS, results / "work", [threshold])
    found = join([_read_pairs(path) for path in (results / "work").rglob("pairs-*.npz")])
    actual = np.zeros(len(texts), bool)
    actual[[row for row, _ in dropped]] = True
    print(f"{len(exact):,} pairs of {len(texts):,} rows have a score of {threshold:g} or more.")
    print(f"Pairs found: {share_found(exact, found):.4f}")
    print(f"Rows that exact search drops: {expected.sum():,}")
    print(f"Of them, dropped: {actual[expected].mean():.4f}; others: {actual[~expected].sum():,}")


def exact_pairs(vectors: Floats, queries: Ids, threshold: float) -> Pairs:
    """Return the pairs of queries and other vectors whose dot product reaches the threshold."""
    parts = []
    rows = vectors[queries].astype(np.float32)
    for start in range(0, len(vectors), _BLOCK):
        block = vectors[start : start + _BLOCK].astype(np.float32)
        scores = rows @ block.T
        i, j = np.nonzero(scores >= threshold)
        left, right = queries[i], j + start
        pairs = Pairs(np.minimum(left, right), np.maximum(left, right), scores[i, j])
        parts.append(pairs.where(left != right))
    return join(parts)


def share_found(exact: Pairs, found: Pairs) -> float:
    """Return the share of exact pairs that were found."""
    size = max(exact.right.max(initial=0), found.right.max(initial=0)) + 1
    keys = exact.left * size + exact.right
    return float(np.isin(keys, found.left * size + found.right).mean())


def _read_pairs(path: Path) -> Pairs:
    with np.load(path) as arrays:
        return Pairs(arrays["left"], arrays["right"], arrays["scores"])


if __name__ == "__main__":
    typer.run(main)
