"""`GET /`: the playground, a page to try the service. It sends requests only to this service."""

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
    "Cache-Control": "no-cache",  # revalidate every time
}


class _File(NamedTuple):
    content: bytes
    media_type: str
    etag: str


def _read(path: Path) -> _File:
    content = path.read_bytes()
    media_type = guess_type(path.name)[0] or "application/octet-stream"
    return _File(content, media_type, f'"{sha256(content).hexdigest()[:16]}"')


_INDEX = "index.html"
_CONTENTS = {path.name: _read(path) for path in _FILES.iterdir() if path.is_file()}


@router.head("/")
@router.get("/")
async def page(request: Request) -> Response:
    """Return the page."""
    return _respond(request, _INDEX)


@router.get("/playground/{name}")
async def asset(request: Request, name: str) -> Response:
    """Return a style sheet, script or icon of the page."""
    if name not in _CONTENTS:
        raise HTTPException(404)
    return _respond(request, name)


def _respond(request: Request, name: str) -> Response:
    content, media_type, etag = _CONTENTS[name]
    headers = _HEADERS | {"ETag": etag}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)
