"""Responses as JSON or numpy arrays, and their documentation."""

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

from app.errors import MODEL_ERRORS, document

NPY = "application/x-npy"

_ROWS_PER_CHUNK = 4096

Items = list[Any] | NDArray[Any]


def document_model_responses(
    path: str = "/", array: str | None = None
) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's `responses` of a model endpoint.

    Args:
        path: of the endpoint, or its beginning; it decides the shape of errors.
        array: description of its npy response, if it has one.
    """
    headers: dict[str, Any] = {
        name: {"schema": {"type": "string"}}
        for name in ("x-request-id", "x-model", "x-fingerprint")
    }
    for name in ("x-total-time", "x-tokenization-time", "x-queue-time", "x-inference-time"):
        headers[name] = {"schema": {"type": "number"}, "description": "In milliseconds."}
    for name in ("x-compute-tokens", "x-truncated-inputs"):
        headers[name] = {"schema": {"type": "integer"}}
    success: dict[str, Any] = {"headers": headers}
    if array is not None:
        schema = {"type": "string", "format": "binary", "description": array}
        success["content"] = {NPY: {"schema": schema}}
    return {200: success, **document(*MODEL_ERRORS, path=path)}


def json_response(content: object, **lists: Iterable[Items]) -> Response:
    """Return JSON, written directly from numpy arrays.

    Long `lists`, added to the object `content`, come in chunks: serialising all of a list at once
    would hold the GIL, and with it the event loop.
    """
    parts = [_dumps(content)]
    if lists:
        parts[0] = parts[0].removesuffix(b"}")
        for name, chunks in lists.items():
            parts.append(b',"%s":[' % name.encode())
            for index, chunk in enumerate(chunks):
                parts.append(b"," if index else b"")
                parts.append(_dumps(chunk)[1:-1])
            parts.append(b"]")
        parts.append(b"}")
    return Response(b"".join(parts), media_type="application/json")


def json_list(chunks: Iterable[Items]) -> Response:
    """Return a JSON list, serialised chunk by chunk."""
    rows = b",".join(_dumps(chunk)[1:-1] for chunk in chunks)
    return Response(b"[" + rows + b"]", media_type="application/json")


def row_chunks(array: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield the rows of an array in chunks."""
    starts = range(0, len(array), _ROWS_PER_CHUNK)
    return (array[start : start + _ROWS_PER_CHUNK] for start in starts)


def npy_response(array: NDArray[Any]) -> Response:
    """Return an array in the format that `numpy.load` reads."""
    header = _npy_header(array.shape, array.dtype)
    return Response(b"".join((header, np.ascontiguousarray(array).data)), media_type=NPY)


@lru_cache
def _npy_header(shape: tuple[int, ...], dtype: np.dtype[Any]) -> bytes:
    """Return the npy header; for a few sentences, writing it takes longer than their data."""
    file = BytesIO()
    header = {"descr": dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    write_array_header_1_0(file, header)
    return file.getvalue()


def to_base64(array: NDArray[Any], dtype: str = "float32") -> str:
    """Return the numbers of an array, little-endian, in base64."""
    little_endian = np.dtype(dtype).newbyteorder("<")
    return b64encode(array.astype(little_endian).tobytes()).decode()


def wants_npy(request: Request) -> bool:
    """Whether the `Accept` header names npy and not JSON."""
    accepted = request.headers.get("accept", "")
    return NPY in accepted and "application/json" not in accepted


def _dumps(content: object) -> bytes:
    return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
