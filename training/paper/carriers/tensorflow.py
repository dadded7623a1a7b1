"""Float32 variables of a TensorFlow checkpoint, read without TensorFlow.

`NAME.index` is a LevelDB table (github.com/google/leveldb, doc/table_format.md) from variable names
to `BundleEntryProto`s (tensorflow/core/protobuf/tensor_bundle.proto): type, shape, offset and size
of the values in `NAME.data-00000-of-00001`. Checksums are not read: the files' hashes are pinned.
"""

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow
from numpy.typing import NDArray

from lattemix.build.backbones import BackboneError

_MAGIC = (0xDB4775248B80FB57).to_bytes(8, "little")
_FOOTER = 48
_FLOAT = 1  # DT_FLOAT
_TYPE, _SHAPE, _SHARD, _OFFSET, _SIZE = 1, 2, 3, 4, 5  # fields of BundleEntryProto
_DIM, _DIM_SIZE = 2, 1  # fields of TensorShapeProto and of its Dim

Message = dict[int, list[int | bytes]]  # values by field number


def read_variables(prefix: Path) -> dict[str, NDArray[np.float32]]:
    """Return the float32 variables of an unsharded checkpoint, given its path without suffix."""
    index = prefix.with_name(f"{prefix.name}.index").read_bytes()
    data = prefix.with_name(f"{prefix.name}.data-00000-of-00001").read_bytes()
    if len(index) < _FOOTER or not index.endswith(_MAGIC):
        raise BackboneError(f"{prefix}.index is not the index of a TensorFlow checkpoint.")
    variables = {}
    for name, value in _table(index):
        entry = _message(value)
        if name and entry.get(_TYPE) == [_FLOAT]:  # the empty name has the header
            variables[name.decode()] = _variable(name.decode(), entry, data)
    return variables


def _variable(name: str, entry: Message, data: bytes) -> NDArray[np.float32]:
    # protobuf leaves out fields that are zero.
    shard, offset, size = (_number(entry, field) for field in (_SHARD, _OFFSET, _SIZE))
    shape = [_number(_message(dim), _DIM_SIZE) for dim in _messages(entry, _SHAPE, _DIM)]
    values = data[offset : offset + size]
    if shard or len(values) != size or size != 4 * np.prod(shape, dtype=np.int64):
        raise BackboneError(f"The values of {name} {shape} are not in the checkpoint's data file.")
    return np.frombuffer(values, "<f4").reshape(shape)


def _table(file: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a LevelDB table."""
    footer = file[-_FOOTER:]
    _, position = _handle(footer, 0)  # of the index of filters, which TensorFlow does not write
    index, _ = _handle(footer, position)
    for _, value in _entries(_block(file, *index)):
        yield from _entries(_block(file, *_handle(value, 0)[0]))


def _block(file: bytes, offset: int, size: int) -> bytes:
    """Return a block, decompressed: a byte after it is 1 if it is compressed with Snappy."""
    block = file[offset : offset + size]
    if file[offset + size] == 0:
        return block
    length, _ = _varint(block, 0)
    decompressed: bytes = pyarrow.decompress(block, length, codec="snappy", asbytes=True)
    return decompressed


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a block; a key omits the prefix that it shares with the last."""
    (restarts,) = struct.unpack("<I", block[-4:])
    end = len(block) - 4 * (restarts + 1)
    key, position = b"", 0
    while position < end:
        shared, position = _varint(block, position)
        unshared, position = _varint(block, position)
        size, position = _varint(block, position)
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        yield key, block[position : position + size]
        position += size


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    """Read the offset and size of a block; return them and the position after them."""
    offset, position = _varint(data, position)
    size, position = _varint(data, position)
    return (offset, size), position


def _message(data: int | bytes) -> Message:
    """Parse a protobuf message."""
    assert isinstance(data, bytes)
    fields: Message = {}
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        value: int | bytes
        if tag & 7 == 0:
            value, position = _varint(data, position)
        else:  # length-delimited, or 8 or 4 bytes
            size, position = _varint(data, position) if tag & 7 == 2 else (0, position)
            size = size if tag & 7 == 2 else {1: 8, 5: 4}[tag & 7]
            value, position = data[position : position + size], position + size
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _messages(entry: Message, field: int, nested: int) -> list[int | bytes]:
    """Return the values of a repeated field of a nested message."""
    return [value for outer in entry.get(field, []) for value in _message(outer).get(nested, [])]


def _number(message: Message, field: int) -> int:
    (value,) = message.get(field, [0])
    assert isinstance(value, int)
    return value


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Read a number in groups of 7 bits; return it and the position after it."""
    value = shift = 0
    while True:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
