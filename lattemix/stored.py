"""Compare mixtures that were computed earlier."""

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from lattemix.calibrated import calibrated
from lattemix.errors import FingerprintError
from lattemix.ranking import order
from lattemix.responses import ModelResponse, RankResult
from lattemix.similarity import Centre, matrix
from model_store import LatteMixError, Metric
from model_store.calibration import Calibration

Floats = NDArray[np.float32]

_CHUNK = 4096  # mixtures in memory


def check_fingerprint(name: str, fingerprint: str | None, model: ModelResponse) -> None:
    """Raise `FingerprintError` unless stored mixtures are the model's; errors call them `name`."""
    if fingerprint == model.fingerprint:
        return
    stored = f"the fingerprint is {fingerprint}" if fingerprint else "there is no fingerprint"
    raise FingerprintError(
        f"{name}: {stored}, and model {model.model} has {model.fingerprint}: choose the model that "
        "computed the mixtures, or encode the sentences again."
    )


def rank_stored(
    query: Floats,
    mixtures: Iterable[Floats],
    metric: Metric,
    centre: Centre | None,
    top_k: int | None,
    calibration: Calibration | None,
) -> list[RankResult]:
    """Order mixtures by their similarity to the query's [L, C]; skip those with NaN."""
    indices, scores = [np.empty(0, np.intp)], [np.empty(0, np.float32)]
    start = 0
    for chunk in _chunks(mixtures, query.shape):
        (valid,) = np.nonzero(np.isfinite(chunk).all(axis=(1, 2)))
        indices.append(start + valid)
        scores.append(matrix(metric, query[None], chunk[valid], centre)[0])
        start += len(chunk)
    positions, values = np.concatenate(indices), np.concatenate(scores)
    meanings = calibrated(calibration, {metric: values})
    return [
        RankResult(
            index=int(positions[i]),
            score=values[i],
            truncated=False,
            **{name: column[i] for name, column in meanings.items()},
        )
        for i in order(values)[:top_k].tolist()
    ]


def _chunks(mixtures: Iterable[Floats], shape: tuple[int, ...]) -> Iterator[Floats]:
    """Yield arrays [n, L, C]; raise `LatteMixError` for a mixture of another shape."""
    iterator, start = iter(mixtures), 0
    while rows := [*islice(iterator, _CHUNK)]:
        for index, row in enumerate(rows, start):
            if np.shape(row) not in (shape, (shape[0] * shape[1],)):
                raise LatteMixError(
                    f"mixtures[{index}] has shape {np.shape(row)}, and the model's mixtures have "
                    f"{shape}."
                )
        yield np.array([np.reshape(row, shape) for row in rows], np.float32)
        start += len(rows)
