"""Parity: how closely an assembled model reproduces the mixtures recorded with its head."""

import math

import numpy as np
from numpy.typing import NDArray

from lattemix.build.families import ExportError
from lattemix.build.head import Head
from lattemix.encoder import Encoder
from model_store import Artifact, Precision
from model_store.manifest import Parity

REFERENCE = "transformers in torch, float32, recorded when the head was trained"

# A correct graph differs from torch by rounding only, in float32 by a few 1e-6; a wrong one by far
# more. int8 may change single probabilities a lot, but not the ranking of similarities.
MAX_DIFFERENCE: dict[Precision, float] = {"fp32": 1e-4, "fp16": 0.05, "int8": math.inf}
# Stored distributions are rounded by less than 2**-11 in fp16 and 1/255 in int8.
MAX_STORED_DIFFERENCE: dict[Precision, float] = {"fp32": 1e-4, "fp16": 1e-3, "int8": 0.005}
MIN_AGREEMENT = 0.9


def check_parity(artifact: Artifact, head: Head, stored: bool = False) -> Parity:
    """Measure parity; raise ExportError if the artifact is too far from its reference.

    Args:
        artifact: the artifact.
        head: the head it was assembled from.
        stored: whether it is a table of distributions.
    """
    parity = measure_parity(artifact, head)
    limits = MAX_STORED_DIFFERENCE if stored else MAX_DIFFERENCE
    limit = limits[artifact.manifest.precision]
    # Not `>` and `<`, which are false for NaN.
    if parity.largest_difference <= limit and parity.rank_agreement >= MIN_AGREEMENT:
        return parity
    raise ExportError(
        f"The {artifact.manifest.precision} graph differs from the reference by up to "
        f"{parity.largest_difference:.1e} (limit {limit:g}), and the rank correlation of the probe "
        f"similarities is {parity.rank_agreement:.3f} (at least {MIN_AGREEMENT}): the head, the "
        "tokenizer or this machine's ONNX Runtime differs from the one in training. "
        f"{artifact.manifest.reference} was not published."
    )


def measure_parity(artifact: Artifact, head: Head) -> Parity:
    """Encode the head's probe sentences and compare them to the recorded mixtures."""
    # Truncated, as in training.
    encoding = Encoder(artifact, provider="cpu").encode(head.spec.probes, "right")
    # A static model reads texts whole, but its head was recorded on truncated ones.
    recorded = np.array(encoding.tokens) <= head.spec.max_tokens
    comparable = recorded | (not artifact.manifest.is_static)  # [P]
    mixtures = encoding.mixtures[comparable]  # [P, L, C]
    reference = head.tensors["probes"][comparable]
    return Parity(
        reference=REFERENCE,
        probes=len(reference),
        largest_difference=float(np.abs(mixtures - reference).max()),
        rank_agreement=_spearman(_all_pairs(mixtures), _all_pairs(reference)),
    )


def _all_pairs(mixtures: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cosine similarity of every two probes: [P, L, C] -> [P (P - 1) / 2]."""
    flat = mixtures.reshape(len(mixtures), -1)
    flat = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    cosines: NDArray[np.float32] = flat @ flat.T
    return cosines[np.triu_indices(len(flat), k=1)]


def _spearman(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    with np.errstate(invalid="ignore"):  # NaN if all values are equal
        return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Mean ranks; values that differ only by rounding are ties."""
    _, positions, counts = np.unique(values.round(5), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - counts / 2)[positions]
