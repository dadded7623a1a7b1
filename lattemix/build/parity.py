"""Does the assembled graph give what the reference gave? Measured on the head's own probes."""

import numpy as np
from numpy.typing import NDArray

from lattemix.build.head import Head
from lattemix.encoder import Encoder
from model_store import Artifact
from model_store.manifest import Parity

REFERENCE = "transformers in torch, float32, recorded when the head was trained"


def measure(artifact: Artifact, head: Head) -> Parity:
    """Run the probe sentences through the artifact, from text to mixture, and compare."""
    reference = head.tensors["probes"]  # [P, L, C]
    found = Encoder(artifact, provider="cpu").encode(head.spec.probes).mixtures
    return Parity(
        reference=REFERENCE,
        probes=len(reference),
        largest_difference=float(np.abs(found - reference).max()),
        rank_agreement=_spearman(_all_pairs(found), _all_pairs(reference)),
    )


def _all_pairs(mixtures: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cosine similarity of every two probes: [P, L, C] -> [P (P - 1) / 2]."""
    flat = mixtures.reshape(len(mixtures), -1)
    flat = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    cosines: NDArray[np.float32] = flat @ flat.T
    return cosines[np.triu_indices(len(flat), k=1)]


def _spearman(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    with np.errstate(invalid="ignore"):  # all alike: NaN, which agrees with nothing
        return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Ranks, equal values at their middle; what differs by rounding alone is equal."""
    _, places, counts = np.unique(values.round(5), return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - counts / 2)[places]
