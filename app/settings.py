"""Settings of the service: environment variables LATTEMIX_*, or flags of the same name."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import NoDecode

from lattemix.settings import ModelSettings, read_settings
from model_store import LatteMixError


def _split(value: object, info: ValidationInfo) -> object:
    """Split a comma-separated list."""
    if not isinstance(value, str):
        return value
    items = [item.strip() for item in value.split(",") if item.strip()]
    if not items:  # an empty list must not remove the restriction
        what = {"api_keys": "key", "cors_origins": "origin", "models": "model"}
        raise ValueError(_empty_list(what[str(info.field_name)]))
    return items


def _empty_list(what: str) -> str:
    return (
        f"should list at least one {what}, with commas between; unset it to serve without {what}s"
    )


CommaSeparated = (NoDecode, BeforeValidator(_split))


class Settings(ModelSettings):
    """Configuration of the service. `LATTEMIX_<FIELD>` sets a field."""

    models: Annotated[tuple[str, ...], *CommaSeparated] = Field(
        (),
        description="Models to serve, comma-separated: `name` or `name:precision`. The first is "
        "the default. Unset: the one of `LATTEMIX_MODEL`.",
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on. 0: any free port.")
    max_inputs: int = Field(1024, ge=2, description="Maximum sentences per request.")
    max_characters: int = Field(100_000, ge=1, description="Maximum characters per sentence.")
    max_body_bytes: int = Field(4_000_000, ge=1, description="Maximum request body, in bytes.")
    max_requests: int = Field(512, ge=1, description="Maximum concurrent requests; more get 429.")
    max_sentences: int = Field(
        32_768,
        ge=1,
        description="Reject new requests with 429 while this many sentences are in progress.",
    )
    max_wait_seconds: float = Field(
        1,
        gt=0,
        description="Reject with 429 when the estimated queue wait exceeds this many seconds, "
        "unless at most 16 requests are in progress.",
    )
    cache_bytes: int = Field(
        64_000_000,
        ge=0,
        description="Memory of the mixture cache, allocated at start-up and divided among the "
        "models. 0: no cache; static models have none.",
    )
    request_timeout: float = Field(60, gt=0, description="Request timeout, in seconds.")
    drain_seconds: float = Field(
        2,
        ge=0,
        description="Seconds after SIGTERM in which `/ready` fails but requests are served.",
    )
    grace_seconds: float = Field(
        30, ge=0, description="Seconds to finish accepted requests after draining; then 503."
    )
    api_keys: Annotated[tuple[SecretStr, ...], *CommaSeparated] = Field(
        (), description="Accepted bearer keys, comma-separated. Unset: no key needed."
    )
    api_keys_file: Path | None = Field(None, description="File of bearer keys, one per line.")
    key_rate: float = Field(
        0,
        ge=0,
        description="Requests per second per key, with bursts of ten seconds' worth. 0: unlimited.",
    )
    cors_origins: Annotated[tuple[str, ...], *CommaSeparated] = Field(
        (), description="Allowed CORS origins, comma-separated; `*` allows any."
    )
    playground: bool = Field(True, description="Serve the playground page at `/`.")
    otlp_endpoint: str | None = Field(
        None, description="OpenTelemetry collector URL for traces; needs `lattemix[otel]`."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Log level."
    )
    log_format: Literal["text", "json"] = Field("text", description="Log format.")

    @field_validator("api_keys_file")
    @classmethod
    def _expand_home_of_keys(cls, path: Path | None) -> Path | None:
        return path and path.expanduser()

    @field_validator("key_rate")
    @classmethod
    def _needs_keys(cls, rate: float, info: ValidationInfo) -> float:
        if rate and not (info.data.get("api_keys") or info.data.get("api_keys_file")):
            raise ValueError(
                "limits requests per key, and there are no keys: set LATTEMIX_API_KEYS or "
                "LATTEMIX_API_KEYS_FILE"
            )
        return rate


def load_settings(**overrides: Any) -> Settings:
    """Read the environment; arguments other than None take precedence."""
    # Empty variables count as unset, but this one would open the service. Case does not matter.
    for name, value in os.environ.items():
        if name.upper() == "LATTEMIX_API_KEYS" and not value:
            raise LatteMixError(f"LATTEMIX_API_KEYS=...: {_empty_list('key')}.")
    return read_settings(Settings, secrets=("api_keys",), **overrides)
