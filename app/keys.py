"""Who may use the service: bearer keys from LATTEMIX_API_KEYS and LATTEMIX_API_KEYS_FILE."""

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

from app.errors import ApiError, refuse
from app.settings import Settings
from model_store import LatteMixError

log = logging.getLogger("lattemix")

OPEN = {"/", "/health", "/ready", "/metrics", "/docs", "/openapi.json"}
_OPEN_UNDER = ("/playground/", "/static-offline-docs/")

_REFRESH_SECONDS = 1.0
_BURST_SECONDS = 10.0

_SENDABLE = re.compile(r"[!-~]+")  # visible ASCII: what a header carries unchanged

_MISSING = (
    "This service needs a key: send it as `Authorization: Bearer KEY` "
    "(LATTEMIX_API_KEYS lists those it takes)."
)
_WRONG = "The key sent is not one this service takes (LATTEMIX_API_KEYS)."


class Keys:
    """The keys that the service takes; only their digests are kept.

    The key file is read again every second, so that a key can be revoked without a restart.
    """

    def __init__(self, keys: Iterable[str] = (), file: Path | None = None) -> None:
        self._fixed = [_digest(key) for key in keys]
        self._file = file
        self._listed = [] if file is None else _read(file)  # in the file
        self._read_at = time.monotonic()
        self._problem = ""  # with the file, already logged

    @classmethod
    def load(cls, settings: Settings) -> "Keys":
        """The keys of the settings and of their file; raise `LatteMixError` if one is unusable."""
        keys = [key.get_secret_value() for key in settings.api_keys]
        _check(keys, "LATTEMIX_API_KEYS")
        return cls(keys, settings.api_keys_file)

    def __bool__(self) -> bool:
        return bool(self._fixed or self._listed)

    def find(self, key: str) -> bytes | None:
        """The digest of `key` if it is one of them; how long that takes says nothing about them."""
        self._refresh()
        sent, found = _digest(key), False
        for digest in (*self._fixed, *self._listed):  # all: the time must not tell which matched
            found |= hmac.compare_digest(sent, digest)
        return sent if found else None

    def _refresh(self) -> None:
        """Read the file again; while it cannot be used, the keys read last stay in force."""
        if self._file is None or time.monotonic() - self._read_at < _REFRESH_SECONDS:
            return
        self._read_at = time.monotonic()
        try:
            listed = _read(self._file)
        except LatteMixError as error:
            if self._problem != str(error):
                log.error("%s The keys that were read before stay in force.", error)
            self._problem = str(error)
            return
        self._problem = ""
        if listed != self._listed:
            self._listed = listed
            log.info("LATTEMIX_API_KEYS_FILE has changed: it holds %d keys now.", len(listed))


class Rate:
    """How often each key may ask: so many times a second, on average over some seconds."""

    def __init__(self, per_second: float) -> None:
        self._per_second = per_second
        self._most = max(1.0, per_second * _BURST_SECONDS)
        self._left: dict[bytes, tuple[float, float]] = {}  # requests of each key, and since when

    def wait(self, key: bytes) -> float:
        """Count a request; return 0, or the seconds until the key may ask again."""
        if not self._per_second:
            return 0.0
        now = time.monotonic()
        left, since = self._left.get(key, (self._most, now))
        left = min(self._most, left + (now - since) * self._per_second)
        taken = left >= 1
        self._left[key] = (left - taken, now)
        return 0.0 if taken else (1 - left) / self._per_second


class RequireKey:
    """Refuse requests without a known key, before their body is read; no keys refuse nobody."""

    def __init__(self, app: ASGIApp, keys: Keys, rate: float = 0.0) -> None:
        self.app = app
        self.keys = keys
        self.rate = Rate(rate)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401 or 429."""
        problem = self._problem(scope) if self.keys and scope["type"] == "http" else None
        if problem is None:
            await self.app(scope, receive, send)
            return
        await refuse(problem, scope, receive, send)

    def _problem(self, scope: Scope) -> ApiError | None:
        path: str = scope["path"]
        if path in OPEN or path.startswith(_OPEN_UNDER):
            return None
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        key = key.strip()
        if scheme.lower() != "bearer" or not key:
            return _unauthorized(_MISSING)
        known = self.keys.find(key)
        if known is None:
            return _unauthorized(_WRONG)
        seconds = math.ceil(self.rate.wait(known))
        if not seconds:
            return None
        return ApiError(
            "Overloaded",
            "This key has asked more often than LATTEMIX_KEY_RATE allows: try again in "
            f"{seconds} s.",
            {"Retry-After": str(seconds)},
        )


def _unauthorized(message: str) -> ApiError:
    return ApiError("Unauthorized", message, {"WWW-Authenticate": "Bearer"})


def _read(path: Path) -> list[bytes]:
    """Digests of the keys in a file: one key per line, blank lines and `#` comments aside."""
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
    return [_digest(key) for key in keys]


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
