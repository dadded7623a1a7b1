import dataclasses

import numpy as np
import pytest

from lattemix.build.families import ExportError
from lattemix.build.head import Head
from lattemix.build.parity import check_parity, measure_parity
from model_store import Artifact


def with_probes(head: Head, probes: np.ndarray) -> Head:
    return dataclasses.replace(head, tensors={**head.tensors, "probes": probes})


def test_measures_difference_and_rank_agreement(artifact: Artifact, head: Head) -> None:
    parity = measure_parity(artifact, head)
    assert parity == check_parity(artifact, head)
    assert parity.probes == len(head.spec.probes)
    assert parity.largest_difference < 1e-5
    assert parity.rank_agreement > 0.999
    shifted = with_probes(head, head.tensors["probes"] + np.float32(0.25))
    assert measure_parity(artifact, shifted).largest_difference == pytest.approx(0.25, abs=1e-4)


@pytest.mark.parametrize(
    "change",
    [
        lambda probes: probes + np.float32(1e-3),  # more than rounding
        lambda probes: probes[::-1],
        lambda probes: probes[:1].repeat(len(probes), axis=0),  # the rank correlation is NaN
    ],
)
def test_rejects_artifact_that_differs_from_the_reference(
    artifact: Artifact, head: Head, change
) -> None:
    with pytest.raises(ExportError, match=r"The fp32 graph differs .* tiny:fp32 was not published"):
        check_parity(artifact, with_probes(head, change(head.tensors["probes"])))


def test_stored_distributions_may_differ_by_a_rounding_unit_only(
    artifact: Artifact, head: Head
) -> None:
    int8 = Artifact(artifact.path, artifact.manifest.model_copy(update={"precision": "int8"}))
    probes = head.tensors["probes"]
    near, far = (with_probes(head, probes + np.float32(shift)) for shift in (0.004, 0.006))
    assert check_parity(int8, near, stored=True).rank_agreement > 0.9
    with pytest.raises(ExportError, match=r"by up to 6\.0e-03 \(limit 0\.005\)"):
        check_parity(int8, far, stored=True)


def test_int8_is_judged_by_rank_agreement_alone(artifact: Artifact, head: Head) -> None:
    manifest = artifact.manifest.model_copy(update={"precision": "int8"})
    int8 = Artifact(artifact.path, manifest)
    probes = head.tensors["probes"]
    assert check_parity(int8, with_probes(head, probes * np.float32(1.5))).rank_agreement > 0.999
    with pytest.raises(ExportError, match="tiny:int8 was not published"):
        check_parity(int8, with_probes(head, probes[::-1]))
