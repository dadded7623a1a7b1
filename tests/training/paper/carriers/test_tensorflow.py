import struct
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from numpy.typing import NDArray

from lattemix.build.backbones import BackboneError
from training.paper.carriers.tensorflow import read_variables

Variables = dict[str, NDArray[np.float32]]

VARIABLES = {
    "bert/layer/bias": np.arange(3, dtype=np.float32),
    "bert/layer/kernel": np.arange(600, dtype=np.float32).reshape(2, 300),
    "scalar": np.array(7, np.float32),
}


def varint(value: int) -> bytes:
    groups = []
    while value >= 0x80:
        groups.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*groups, value])


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def block(entries: dict[bytes, bytes]) -> bytes:
    """Encode sorted entries; a key is stored without the prefix shared with the last one."""
    content, last = b"", b""
    for key, value in entries.items():
        pairs = zip(key, last, strict=False)
        shared = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(key), len(last)))
        content += varint(shared) + varint(len(key) - shared) + varint(len(value))
        content += key[shared:] + value
        last = key
    return content + struct.pack("<II", 0, 1)


def write(prefix: Path, variables: Variables, compress: bool) -> None:
    entries, data = {b"": field(1, 1)}, b""  # the header has one shard
    for name, value in variables.items():
        shape = b"".join(field(2, field(1, size)) for size in value.shape)
        entry = field(1, 1) + field(2, shape) + field(4, len(data)) + field(5, value.nbytes)
        entries[name.encode()] = entry + varint(6 << 3 | 5) + b"crc!"
        data += value.tobytes()
    entries[b"step"] = field(1, 9) + field(4, 0) + field(5, 8)  # int64, not read
    content = block(entries)
    if compress:
        content = pyarrow.compress(content, codec="snappy", asbytes=True)
    index = block({b"~": varint(0) + varint(len(content))})
    file = content + bytes([compress]) + b"crc!" + index + b"\0crc!"
    footer = varint(0) + varint(0) + varint(len(content) + 5) + varint(len(index))
    magic = struct.pack("<Q", 0xDB4775248B80FB57)
    prefix.with_suffix(".index").write_bytes(file + footer.ljust(40, b"\0") + magic)
    prefix.with_suffix(".data-00000-of-00001").write_bytes(data)


@pytest.mark.parametrize("compress", [False, True])
def test_reads_float_variables(tmp_path: Path, compress: bool) -> None:
    write(tmp_path / "variables", VARIABLES, compress)
    variables = read_variables(tmp_path / "variables")
    assert set(variables) == set(VARIABLES)
    for name, expected in VARIABLES.items():
        assert variables[name].shape == expected.shape
        np.testing.assert_array_equal(variables[name], expected)


def test_rejects_truncated_data(tmp_path: Path) -> None:
    write(tmp_path / "variables", VARIABLES, compress=False)
    data = tmp_path / "variables.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(BackboneError, match="scalar"):
        read_variables(tmp_path / "variables")


def test_rejects_another_file(tmp_path: Path) -> None:
    write(tmp_path / "variables", VARIABLES, compress=False)
    (tmp_path / "variables.index").write_bytes(b"something else")
    with pytest.raises(BackboneError, match="not the index"):
        read_variables(tmp_path / "variables")
