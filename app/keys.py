"""API keys, from LATTEMIX_API_KEYS and LATTEMIX_API_KEYS_FILE, and their request rates."""

import hashlib
import hmac
import logging
import math
import re
import time
from collections.abc import Iterable
from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from app.errors import ApiError, respond
from app.settings import Settings
from model_store import LatteMixError

log = logging.getLogger("lattemix")

PUBLIC_PATHS = {"/", "/health", "/ready", "/metrics", "/docs", "/openapi.json"}
_PUBLIC_PREFIXES = ("/playground/", "/static-offline-docs/")

_REFRESH_SECONDS = 1.0
_BURST_SECONDS = 10.0

_VALID_KEY = re.compile(r"[!-~]+")  # visible ASCII: what a header carries unchanged

_MISSING = (
    "This service needs a key: send it as `Authorization: Bearer KEY` (see LATTEMIX_API_KEYS)."
)
_INVALID = "The API key is not valid (see LATTEMIX_API_KEYS)."


class Keys:
    """The valid keys; only their digests are stored.

    The key file is read again every second, so that a key can be revoked without a restart.
    """

    def __init__(self, keys: Iterable[str] = (), file: Path | None = None) -> None:
        self._from_settings = [_digest(key) for key in keys]
        self._file = file
        self._from_file = [] if file is None else _read(file)
        self._last_read = time.monotonic()
        self._logged_problem = ""  # with the file

    @classmethod
    def load(cls, settings: Settings) -> "Keys":
        """Return the keys of the settings and the file; raise `LatteMixError` if one is invalid."""
        keys = [key.get_secret_value() for key in settings.api_keys]
        _check(keys, "LATTEMIX_API_KEYS")
        return cls(keys, settings.api_keys_file)

    def __bool__(self) -> bool:
        return bool(self._from_settings or self._from_file)

    def find(self, key: str) -> bytes | None:
        """Return the digest of a valid key, in a time that does not depend on the keys."""
        self._refresh()
        digest, valid = _digest(key), False
        for known in (*self._from_settings, *self._from_file):  # all: timing must not tell which
            valid |= hmac.compare_digest(digest, known)
        return digest if valid else None

    def _refresh(self) -> None:
        """Read the file again; if it is invalid, the keys read last stay valid."""
        if self._file is None or time.monotonic() - self._last_read < _REFRESH_SECONDS:
            return
        self._last_read = time.monotonic()
        try:
            digests = _read(self._file)
        except LatteMixError as error:
            if self._logged_problem != str(error):
                log.error("%s The keys read before stay valid.", error)
            self._logged_problem = str(error)
            return
        self._logged_problem = ""
        if digests != self._from_file:
            self._from_file = digests
            log.info("LATTEMIX_API_KEYS_FILE has changed: it now holds %d keys.", len(digests))


class RateLimiter:
    """A token bucket per key: `per_second` requests on average, bursts of ten seconds' worth."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._capacity = max(1.0, per_second * _BURST_SECONDS)
        self._buckets: dict[bytes, tuple[float, float]] = {}  # requests left, and when

    def acquire(self, key: bytes) -> float:
        """Count a request; return 0, or the seconds until the key may send the next one."""
        if not self._per_second:
            return 0.0
        now = time.monotonic()
        level, updated = self._buckets.get(key, (self._capacity, now))
        level = min(self._capacity, level + (now - updated) * self._per_second)
        allowed = level >= 1
        self._buckets[key] = (level - allowed, now)
        return 0.0 if allowed else (1 - level) / self._per_second


class RequireKey:
    """Rejects requests without a valid key before their body is read."""

    def __init__(self, app: ASGIApp, keys: Keys, rate: float = 0.0) -> None:
        self.app = app
        self.keys = keys
        self.limiter = RateLimiter(rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or respond with 401 or 429."""
        error = self._check(scope) if scope["type"] == "http" else None
        response = self.app if error is None else respond(error, scope)
        await response(scope, receive, send)

    def _check(self, scope: Scope) -> ApiError | None:
        path: str = scope["path"]
        reads = scope["method"] != "POST"  # `POST /` computes
        if reads and (path in PUBLIC_PATHS or path.startswith(_PUBLIC_PREFIXES)):
            return None
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or not key:
            return _unauthorized(_MISSING)
        digest = self.keys.find(key)
        if digest is None:
            return _unauthorized(_INVALID)
        seconds = math.ceil(self.limiter.acquire(digest))
        if not seconds:
            return None
        return ApiError(
            "Overloaded",
            f"This key exceeds the requests per second of LATTEMIX_KEY_RATE: retry in {seconds} s.",
            {"Retry-After": str(seconds)},
        )


def _unauthorized(message: str) -> ApiError:
    return ApiError("Unauthorized", message, {"WWW-Authenticate": "Bearer"})


def _read(path: Path) -> list[bytes]:
    """Return digests of the keys in a file: one key per line, `#` starts a comment line."""
    setting = "LATTEMIX_API_KEYS_FILE"
    try:
        # Latin-1 decodes any bytes, so that `_check` rejects what is not ASCII.
        lines = path.read_text(encoding="latin-1").split("\n")
    except OSError as error:
        raise LatteMixError(f"{setting} cannot be read: {error.strerror}.") from error
    keys = [line.strip() for line in lines]
    keys = [key for key in keys if key and not key.startswith("#")]
    # An empty file must not open the service.
    if not keys:
        raise LatteMixError(f"{setting} names a file without keys: write one per line.")
    _check(keys, setting)
    return [_digest(key) for key in keys]


def _check(keys: list[str], setting: str) -> None:
    """Reject keys that no client could send, without showing them."""
    for position, key in enumerate(keys, 1):
        if not _VALID_KEY.fullmatch(key):
            raise LatteMixError(
                f"{setting}: key {position} is not ASCII without spaces, so no client can send it."
            )


def _digest(key: str) -> bytes:
    # Equal length for every key, so that comparison time does not depend on the key's length.
    return hashlib.sha256(key.encode("latin-1")).digest()
