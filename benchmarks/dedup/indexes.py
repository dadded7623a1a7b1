"""Compare indexes for a self-join: all pairs of vectors with at least some cosine.

    python -m benchmarks.dedup.indexes DIRECTORY cells

DIRECTORY is one that `benchmarks.dedup.prepare_indexes` writes. The interpreter needs Latte-Mix,
and faiss-cpu or usearch for their indexes. Each run prints one JSON line.
"""

import json
import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Iterator
from functools import partial
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer
from numpy.typing import NDArray

from lattemix.bulk.dedup import cells
from lattemix.bulk.dedup.pairs import Floats, Ids

PROJECTED, EXACT = "projected.npy", "exact.npz"

Found = tuple[Ids, Ids]  # pairs
Join = Callable[[], Found]
_BLOCK = 8192
_NEIGHBOURS = 32  # of a query of a graph, itself included
_CONNECTIVITY, _EXPAND_ADD, _EXPAND_SEARCH = 16, 128, 64  # the defaults of usearch
_fork = multiprocessing.get_context("fork")  # whose processes share the vectors


class Setting(NamedTuple):
    """What every index is given."""

    vectors: NDArray[np.int8]
    floor: float
    threads: int

    @property
    def cell_count(self) -> int:
        """Number of cells of an inverted file."""
        return int(len(self.vectors) ** 0.5)

    def unit(self, rows: slice | Ids) -> Floats:
        """Return unit vectors."""
        part = self.vectors[rows]
        scaled: Floats = part * cells.inverse_norms(part)[:, None]
        return scaled

    def blocks(self) -> Iterator[tuple[int, Floats]]:
        """Yield the unit vectors in blocks, with the number of the first."""
        for start in range(0, len(self.vectors), _BLOCK):
            yield start, self.unit(slice(start, start + _BLOCK))

    def search(self, search: Callable[[Floats], tuple[Any, Any]]) -> Found:
        """Search all vectors in an index that returns scores and neighbours [N, K]."""
        found = []
        for start, block in self.blocks():
            scores, neighbours = search(block)
            rows, columns = np.nonzero(scores >= self.floor)
            found.append((rows + start, neighbours[rows, columns].astype(np.int64)))
        return _join(found)


def latte_mix(setting: Setting) -> Join:
    """Cells around centroids, of bytes; one process per core."""
    vectors, count = setting.vectors, len(setting.vectors)
    sample = vectors[cells.sample_ids(count)]
    centroids = cells._centroids(sample, setting.cell_count)
    space = cells.Space(np.empty((0, 0), np.float32), centroids)
    with _fork.Pool(setting.threads) as pool:
        blocks = (vectors[start : start + _BLOCK] for start in range(0, count, _BLOCK))
        nearest = np.concatenate(list(pool.imap(space.nearest, blocks)))
    everything = np.ones(count, bool)
    index = cells.Index(nearest, everything, everything)

    def join() -> Found:
        _Cell.find = partial(cells.find_matches, vectors.__getitem__, index, floor=setting.floor)
        with _fork.Pool(setting.threads) as pool:
            return _join(pool.imap(_matches, range(len(centroids)), 4))

    return join


class _Cell:
    find: Callable[..., cells.Matches]  # set before processes are forked


def _matches(cell: int) -> Found:
    matches = _Cell.find(cell=cell)
    return matches.left, matches.right


def _join(parts: Any) -> Found:
    left, right = zip(*parts, strict=True)
    return np.concatenate(left), np.concatenate(right)


def faiss(setting: Setting, key: str) -> Join:
    """An index of faiss by the name that its factory knows."""
    module: Any = import_module("faiss")
    module.omp_set_num_threads(setting.threads)
    dimensions = setting.vectors.shape[1]
    index = module.index_factory(dimensions, key, module.METRIC_INNER_PRODUCT)
    if hasattr(index, "hnsw"):
        index.hnsw.efConstruction, index.hnsw.efSearch = _EXPAND_ADD, _EXPAND_SEARCH
    else:
        index.nprobe = cells.VISITS
    index.train(setting.unit(cells.sample_ids(len(setting.vectors))))
    for _, block in setting.blocks():
        index.add(block)

    def search_range() -> Found:
        found = []
        for start, block in setting.blocks():
            limits, _, neighbours = index.range_search(block, setting.floor)
            rows = np.arange(start, start + len(block))
            found.append((np.repeat(rows, np.diff(limits.astype(np.int64))), neighbours))
        return _join(found)

    if hasattr(index, "hnsw"):
        return lambda: setting.search(lambda block: index.search(block, _NEIGHBOURS))
    return search_range


def usearch(setting: Setting, dtype: str) -> Join:
    """A graph of usearch with its default settings."""
    module: Any = import_module("usearch.index")
    index = module.Index(ndim=setting.vectors.shape[1], metric="cos", dtype=dtype)
    for start, block in setting.blocks():
        index.add(np.arange(start, start + len(block)), block, threads=setting.threads)

    def search(block: Floats) -> tuple[Any, Any]:
        matches = index.search(block, _NEIGHBOURS, threads=setting.threads)
        return 1 - matches.distances, matches.keys

    return lambda: setting.search(search)


INDEXES: dict[str, Callable[[Setting], Join]] = {
    "cells": latte_mix,
    "faiss-ivf-flat": lambda setting: faiss(setting, f"IVF{setting.cell_count},Flat"),
    "faiss-ivf-fp16": lambda setting: faiss(setting, f"IVF{setting.cell_count},SQfp16"),
    "faiss-ivf-sq8": lambda setting: faiss(setting, f"IVF{setting.cell_count},SQ8"),
    "faiss-hnsw-flat": lambda setting: faiss(setting, f"HNSW{_CONNECTIVITY},Flat"),
    "faiss-hnsw-sq8": lambda setting: faiss(setting, f"HNSW{_CONNECTIVITY},SQ8"),
    "usearch-f16": lambda setting: usearch(setting, "f16"),
    "usearch-i8": lambda setting: usearch(setting, "i8"),
}


def main(
    directory: Annotated[Path, typer.Argument(exists=True)],
    name: Annotated[str, typer.Argument(help=", ".join(INDEXES))],
    floor: Annotated[float, typer.Option(help="Smallest score of a pair.")] = 0.85,
    threads: Annotated[int, typer.Option(min=1)] = os.cpu_count() or 1,
) -> None:
    """Build an index, find all pairs, and print times, peak memory and recall."""
    setting = Setting(np.load(directory / PROJECTED), floor, threads)
    began = time.perf_counter()
    join = INDEXES[name](setting)
    built = time.perf_counter()
    left, right = join()
    finished = time.perf_counter()
    keys = np.unique(_keys(left[left != right], right[left != right]))
    with np.load(directory / EXACT) as exact:
        chosen = exact["scores"] >= floor
        expected = _keys(exact["left"][chosen], exact["right"][chosen])
    processes = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    result = {
        "index": name,
        "rows": len(setting.vectors),
        "threads": threads,
        "build_seconds": round(built - began, 1),
        "join_seconds": round(finished - built, 1),
        "peak_mb": [
            resource.getrusage(who).ru_maxrss // 1024 for who in processes
        ],  # itself, a child
        "pairs": len(keys),
        "recall": round(float(np.isin(expected, keys).mean()), 4),
        "digest": blake2b(keys.tobytes(), digest_size=6).hexdigest(),  # equal for equal pairs
    }
    print(json.dumps(result), flush=True)


def _keys(left: Ids, right: Ids) -> Ids:
    """Return a number for each pair, whatever its order."""
    return (np.minimum(left, right) << 32) + np.maximum(left, right)


if __name__ == "__main__":
    typer.run(main)
