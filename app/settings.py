"""Every knob of the service, in one place: environment LATTEMIX_*, or the flag of the same name."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from model_store import LatteMixError
from model_store.store import default_root

Provider = Literal["auto", "cpu", "cuda", "tensorrt"]

_PREFIX = "LATTEMIX_"


def _split(value: object, info: ValidationInfo) -> object:
    """The items of a comma-separated list."""
    if not isinstance(value, str):
        return value
    items = [item.strip() for item in value.split(",") if item.strip()]
    if not items:  # a restriction that is set must not turn into none
        what = "key" if info.field_name == "api_keys" else "origin"
        raise ValueError(
            f"should list at least one {what}, with commas between; unset it to serve without "
            f"{what}s"
        )
    return items


CommaSeparated = (NoDecode, BeforeValidator(_split))


class Settings(BaseSettings):
    """The service's configuration. Each field's environment variable is LATTEMIX_<FIELD>."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_ignore_empty=True, frozen=True, extra="forbid"
    )

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=0, le=65535, description="Port to listen on; 0 picks a free one.")
    model: str = Field("default", description="Model to serve: `name` or `name:precision`.")
    store: Path = Field(
        default_factory=default_root, description="Directory that holds the assembled models."
    )
    provider: Provider = Field("auto", description="`auto`, `cpu`, `cuda` or `tensorrt`.")
    device_id: int = Field(0, ge=0, description="Which GPU, where there are several.")
    threads: int = Field(
        0,
        ge=0,
        le=1024,
        description="Threads of a batch on a CPU, which then runs one at a time; 0 is a batch for "
        "every core, each on one thread unless it is alone.",
    )
    token_budget: int = Field(
        0, ge=0, description="Tokens in one batch, padding included; 0 is as measured at the start."
    )
    max_inputs: int = Field(1024, ge=2, description="Most sentences in one request.")
    max_characters: int = Field(100_000, ge=1, description="Most characters in one sentence.")
    max_body_bytes: int = Field(4_000_000, ge=1, description="Largest request body, in bytes.")
    max_requests: int = Field(512, ge=1, description="Most requests being worked on at once.")
    max_sentences: int = Field(
        32_768, ge=1, description="Most sentences being worked on at once, of all requests."
    )
    max_wait_seconds: float = Field(
        1,
        gt=0,
        description="Seconds that a request would wait for the model, about, above which it is "
        "refused.",
    )
    cache_bytes: int = Field(
        64_000_000,
        ge=0,
        description="Memory for mixtures of recent sentences, taken at the start; 0 keeps none.",
    )
    request_timeout: float = Field(
        60, gt=0, description="Seconds after which a request is given up."
    )
    drain_seconds: float = Field(
        2, ge=0, description="Seconds from SIGTERM, and not ready, until no more is accepted."
    )
    grace_seconds: float = Field(
        30, ge=0, description="Seconds given then to what was accepted, before it is answered 503."
    )
    api_keys: Annotated[tuple[SecretStr, ...], *CommaSeparated] = Field(
        (),
        description="Bearer keys that may use the service, comma-separated. Unset: no key needed.",
    )
    api_keys_file: Path | None = Field(None, description="File of bearer keys, one per line.")
    key_rate: float = Field(
        0, ge=0, description="Requests per second per key, averaged over 10 s; 0: unlimited."
    )
    cors_origins: Annotated[tuple[str, ...], *CommaSeparated] = Field(
        (), description="Web origins whose pages may call the service, with commas; `*` is any."
    )
    playground: bool = Field(True, description="Whether `/` is a page to try the service with.")
    otlp_endpoint: str | None = Field(
        None, description="OpenTelemetry collector that traces are sent to; needs `lattemix[otel]`."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="How much the server says of itself."
    )
    log_format: Literal["text", "json"] = Field("text", description="Lines for people, or JSON.")

    @field_validator("store", "api_keys_file")
    @classmethod
    def _expand_home(cls, path: Path | None) -> Path | None:
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
    """Read the environment; arguments that are not None win over it."""
    given = {name: value for name, value in overrides.items() if value is not None}
    # Empty variables count as unset, but this one would open the service. Case does not matter.
    if any(name.upper() == "LATTEMIX_API_KEYS" and not value for name, value in os.environ.items()):
        given.setdefault("api_keys", "")
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        source = (
            f"--{field.replace('_', '-')}"
            if overrides.get(field) is not None
            else _PREFIX + field.upper()
        )
        value = "..." if field == "api_keys" else first["input"]
        message = first["msg"].removeprefix("Value error, ")
        raise LatteMixError(f"{source}={value}: {message}.") from None
