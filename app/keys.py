"""Who may use the service: bearer keys from LATTEMIX_API_KEYS and LATTEMIX_API_KEYS_FILE."""

import hashlib
import hmac
import re
from collections.abc import Iterable
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import ApiError, refuse
from app.settings import Settings
from model_store import LatteMixError

OPEN = {"/", "/health", "/ready", "/metrics", "/docs", "/openapi.json"}
_OPEN_UNDER = ("/playground/", "/static-offline-docs/")

_SENDABLE = re.compile(r"[!-~]+")  # visible ASCII: what a header carries unchanged

_MISSING = (
    "This service needs a key: send it as `Authorization: Bearer KEY` "
    "(LATTEMIX_API_KEYS lists those it takes)."
)
_WRONG = "The key sent is not one this service takes (LATTEMIX_API_KEYS)."


class Keys:
    """The keys that the service takes; only their digests are kept."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    @classmethod
    def load(cls, settings: Settings) -> "Keys":
        """The keys of the settings and of their file; raise `LatteMixError` if one is unusable."""
        keys = [key.get_secret_value() for key in settings.api_keys]
        _check(keys, "LATTEMIX_API_KEYS")
        if settings.api_keys_file is not None:
            keys += _read(settings.api_keys_file)
        return cls(keys)

    def __bool__(self) -> bool:
        return bool(self._digests)

    def accepts(self, key: str) -> bool:
        """Whether `key` is one of them; how long that takes says nothing about them."""
        sent, found = _digest(key), False
        for digest in self._digests:  # all of them, so that time does not tell which one matched
            found |= hmac.compare_digest(sent, digest)
        return found


class RequireKey:
    """Refuse requests without a known key, before their body is read; no keys refuse nobody."""

    def __init__(self, app: ASGIApp, keys: Keys) -> None:
        self.app = app
        self.keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on or answer 401."""
        problem = self._problem(scope) if self.keys and scope["type"] == "http" else None
        if problem is None:
            await self.app(scope, receive, send)
            return
        error = ApiError("Unauthorized", problem, {"WWW-Authenticate": "Bearer"})
        await refuse(error, scope, receive, send)

    def _problem(self, scope: Scope) -> str | None:
        path: str = scope["path"]
        if path in OPEN or path.startswith(_OPEN_UNDER):
            return None
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or not key:
            return _MISSING
        return None if self.keys.accepts(key) else _WRONG


def _read(path: Path) -> list[str]:
    """The keys in the file: one a line, blank lines and `#` comments aside."""
    setting = "LATTEMIX_API_KEYS_FILE"
    try:
        # Latin-1 reads any bytes, so what is no ASCII is left for the check to refuse.
        lines = path.read_text(encoding="latin-1").split("\n")
    except OSError as error:
        raise LatteMixError(f"{setting} cannot be read: {error.strerror}.") from error
    keys = [line.strip() for line in lines]
    keys = [key for key in keys if key and not key.startswith("#")]
    # The user asked for keys: none must not mean that anyone may come in.
    if not keys:
        raise LatteMixError(f"{setting} names a file without keys: write one a line.")
    _check(keys, setting)
    return keys


def _check(keys: list[str], setting: str) -> None:
    """Refuse keys that no client could send, without showing them."""
    for position, key in enumerate(keys, 1):
        if not _SENDABLE.fullmatch(key):
            raise LatteMixError(
                f"{setting}: key {position} is not plain ASCII without spaces, "
                "so that no client could send it."
            )


def _digest(key: str) -> bytes:
    # Of equal length for every key, so that a comparison does not tell how long one is.
    return hashlib.sha256(key.encode("latin-1")).digest()
