import numpy as np
import pytest
from numpy.typing import NDArray

from lattemix.errors import DTypeError
from lattemix.quantization import DType, check_dtype, quantize


@pytest.fixture(scope="module")
def units() -> NDArray[np.float32]:
    """Unit vectors [200, 320] in clusters, so that similarities range from below 0 to 0.9."""
    random = np.random.default_rng(0)
    rows = random.normal(size=(20, 1, 320)) + random.normal(size=(20, 10, 320))
    rows = rows.reshape(200, 320)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def cosines(rows: NDArray) -> NDArray[np.float64]:
    wide = rows.astype(np.float64)
    wide /= np.linalg.norm(wide, axis=1, keepdims=True)
    return wide @ wide.T


def hamming(rows: NDArray) -> NDArray[np.float64]:
    """Share of different bits of every two vectors."""
    bits = np.unpackbits(quantize(rows, "binary"), axis=1)
    return (bits[:, None] != bits).mean(axis=2)


# int8 rounds a number by up to 1/254 of the largest: the error of a cosine of 320 numbers is 6e-4,
# and the largest of 40,000 about 4.5 times that.
@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-7), ("float16", 1e-4), ("int8", 4e-3)])
def test_cosine_is_kept(units: NDArray[np.float32], dtype: DType, error: float) -> None:
    rows = quantize(units, dtype)
    assert rows.dtype == dtype
    assert rows.shape == units.shape
    np.testing.assert_allclose(cosines(rows), cosines(units), atol=error)


def test_int8_uses_the_full_range(units: NDArray[np.float32]) -> None:
    assert (np.abs(quantize(units, "int8").astype(int)).max(axis=1) == 127).all()


def test_hamming_distance_of_binary_is_the_angle(units: NDArray[np.float32]) -> None:
    # A share of 320 signs has a standard error of up to 0.028; the largest of 40,000 is 4.5 times
    # that.
    angles = np.arccos(cosines(units).clip(-1, 1)) / np.pi
    np.testing.assert_allclose(hamming(units), angles, atol=0.13)


def test_hamming_distance_finds_the_nearest_neighbours(units: NDArray[np.float32]) -> None:
    nearest = np.argsort(hamming(units), axis=1)[:, :10]  # itself and the rest of its cluster
    assert (nearest // 10 == np.arange(200)[:, None] // 10).all()


def test_binary_packs_the_first_number_into_the_highest_bit() -> None:
    rows = np.array([[0.5, -0.5, 0.5, 0, -0.1, 0.1, -0.2, -0.2, 0.3, 0.3]], np.float32)
    assert quantize(rows, "binary").tolist() == [[0b10100100, 0b11000000]]


@pytest.mark.parametrize("dtype", ["float16", "int8", "binary"])
def test_zero_vector_and_empty_list(dtype: DType) -> None:
    assert not quantize(np.zeros((1, 16), np.float32), dtype).any()
    assert len(quantize(np.zeros((0, 16), np.float32), dtype)) == 0


def test_binary_needs_centred() -> None:
    check_dtype("binary", "centred")
    with pytest.raises(DTypeError, match="no negative numbers: use the metric 'centred'"):
        check_dtype("binary", "cosine")


def test_unknown_dtype_lists_the_choices() -> None:
    with pytest.raises(DTypeError, match="choose among float32, float16, int8, binary"):
        check_dtype("int4", "centred")  # type: ignore[arg-type]
