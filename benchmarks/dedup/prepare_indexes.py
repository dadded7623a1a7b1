"""Prepare a comparison of indexes: projected vectors, and the true neighbours of some of them.

    python -m benchmarks.dedup.prepare_indexes CORPUS DIRECTORY --rows 200000

Then `benchmarks.dedup.indexes` compares indexes, in an interpreter that has them.
"""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

import lattemix
from benchmarks.dedup import corpus
from benchmarks.dedup.exact import exact_pairs
from benchmarks.dedup.indexes import EXACT, PROJECTED
from lattemix.bulk.dedup.cells import make_space, sample_ids

_BATCH = 8192


def main(
    source: Annotated[Path, typer.Argument(metavar="CORPUS", exists=True)],
    directory: Annotated[Path, typer.Argument(help="Directory to write.")],
    rows: Annotated[int, typer.Option(min=2, help="Use the first rows.")] = 200_000,
    queries: Annotated[int, typer.Option(min=1, help="Rows to find all neighbours of.")] = 20_000,
    threshold: Annotated[float, typer.Option(help="Smallest score of a neighbour.")] = 0.85,
) -> None:
    """Write projected vectors of the model `fast`, and pairs by exact search."""
    texts = corpus.read(source)[0][:rows]
    model = lattemix.load("fast")
    batches = [texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH)]
    vectors = np.concatenate([model.vectors(batch, dtype="float16") for batch in batches])
    space = make_space(vectors[sample_ids(len(vectors))].astype(np.float32), len(vectors))
    starts = range(0, len(vectors), _BATCH)
    projected = [space.project(vectors[start : start + _BATCH]) for start in starts]
    sampled = np.random.default_rng(0).choice(len(vectors), min(queries, rows), replace=False)
    exact = exact_pairs(vectors, np.sort(sampled), threshold)
    directory.mkdir(parents=True, exist_ok=True)
    np.save(directory / PROJECTED, np.concatenate(projected))
    np.savez(directory / EXACT, left=exact.left, right=exact.right, scores=exact.scores)
    print(f"{len(exact):,} pairs have a score of {threshold:g} or more.")


if __name__ == "__main__":
    typer.run(main)
