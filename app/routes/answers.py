"""How the endpoints answer: fast JSON, arrays, and what the documentation says of both."""

from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import lru_cache
from io import BytesIO
from typing import Any

import numpy as np
import orjson
from fastapi import Request, Response
from numpy.lib.format import dtype_to_descr, write_array_header_1_0
from numpy.typing import NDArray

from app.errors import MODEL_ERRORS, documented

NPY = "application/x-npy"

Items = list[Any] | NDArray[Any]


def documented_answers(array: str | None = None) -> dict[int | str, dict[str, Any]]:
    """OpenAPI's `responses` for an endpoint of the model; `array` is what npy holds, if it can."""
    times = ("x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time")
    counts = ("x-compute-tokens", "x-truncated-inputs")
    headers: dict[str, Any] = {"x-request-id": {"schema": {"type": "string"}}}
    for name in times:
        headers[name] = {"schema": {"type": "number"}, "description": "In milliseconds."}
    for name in counts:
        headers[name] = {"schema": {"type": "integer"}}
    success: dict[str, Any] = {"headers": headers}
    if array is not None:
        schema = {"type": "string", "format": "binary", "description": array}
        success["content"] = {NPY: {"schema": schema}}
    return {200: success, **documented(*MODEL_ERRORS)}


def json(content: object) -> Response:
    """Answer with JSON, written straight from numpy arrays."""
    return _response(dumped(content))


def json_with(content: dict[str, Any], **long: Iterable[Items]) -> Response:
    """Answer with an object that has some long lists more, each given in parts.

    Part by part: writing it all at once holds the interpreter's lock, and with it the event loop.
    """
    written = [dumped(content).removesuffix(b"}")]
    for name, parts in long.items():
        start = b',"%s":[' % name.encode()
        for part in parts:
            written += (start, dumped(part)[1:-1])
            start = b","
        written.append(b"]" if start == b"," else start + b"]")
    return _response(b"".join((*written, b"}")))  # once: it may be long


def in_parts(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """The rows of an array, some thousands at a time."""
    return (array[start : start + 4096] for start in range(0, len(array), 4096))


def npy(array: NDArray[Any]) -> Response:
    """Answer with an array, as `numpy.load` reads it."""
    header = _npy_header(array.shape, array.dtype)
    return Response(b"".join((header, np.ascontiguousarray(array).data)), media_type=NPY)


@lru_cache
def _npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """What comes before the numbers; for a few sentences it would take longer than they do."""
    file = BytesIO()
    about = {"descr": dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    write_array_header_1_0(file, about)
    return file.getvalue()


def base64_of(array: NDArray[Any], dtype: str = "float32") -> str:
    """An array's numbers, little-endian, as text."""
    little_endian = np.dtype(dtype).newbyteorder("<")
    return b64encode(array.astype(little_endian).tobytes()).decode()


def dumped(content: object) -> bytes:
    """JSON of Python objects and numpy arrays."""
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)


def _response(content: bytes) -> Response:
    return Response(content, media_type="application/json")


def wants_npy(request: Request) -> bool:
    """Whether the client's `Accept` header asks for an array, and not for JSON."""
    accepted = request.headers.get("accept", "")
    return NPY in accepted and "application/json" not in accepted
