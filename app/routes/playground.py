"""`GET /`: a page to try the service with. It talks to nobody but this service."""

from hashlib import sha256
from mimetypes import guess_type
from pathlib import Path
from typing import NamedTuple

from fastapi import APIRouter, Request, Response
from starlette.exceptions import HTTPException

router = APIRouter(include_in_schema=False)

_FILES = Path(__file__).parent.parent / "playground"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",  # ask each time whether it has changed
}


class _File(NamedTuple):
    content: bytes
    media_type: str
    etag: str


def _read(path: Path) -> _File:
    content = path.read_bytes()
    media_type = guess_type(path.name)[0] or "application/octet-stream"
    return _File(content, media_type, f'"{sha256(content).hexdigest()[:16]}"')


_PAGE = "index.html"
_PARTS = {path.name: _read(path) for path in _FILES.iterdir() if path.is_file()}


@router.head("/")
@router.get("/")
async def page(request: Request) -> Response:
    """The page."""
    return _answer(request, _PAGE)


@router.get("/playground/{name}")
async def part(request: Request, name: str) -> Response:
    """Its styles and scripts."""
    if name not in _PARTS:
        raise HTTPException(404)
    return _answer(request, name)


def _answer(request: Request, name: str) -> Response:
    content, media_type, etag = _PARTS[name]
    headers = _HEADERS | {"ETag": etag}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)
