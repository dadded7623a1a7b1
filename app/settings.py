"""Every knob of the service, in one place: environment LATTEMIX_*, or the flag of the same name."""

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from model_store import LatteMixError
from model_store.store import default_root

Provider = Literal["auto", "cpu", "cuda", "tensorrt"]

_PREFIX = "LATTEMIX_"


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
        0, ge=0, le=1024, description="Threads of one inference; 0 is one per core."
    )
    token_budget: int = Field(1024, ge=1, description="Tokens in one batch, padding included.")
    max_inputs: int = Field(1024, ge=2, description="Most sentences in one request.")
    max_characters: int = Field(100_000, ge=1, description="Most characters in one sentence.")
    max_body_bytes: int = Field(4_000_000, ge=1, description="Largest request body, in bytes.")
    max_waiting: int = Field(256, ge=1, description="Most requests waiting for the model.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="How much the server says of itself."
    )

    @field_validator("store")
    @classmethod
    def _expand_home(cls, store: Path) -> Path:
        return store.expanduser()


def load_settings(**overrides: Any) -> Settings:
    """Read the environment; arguments that are not None win over it."""
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        source = f"--{field.replace('_', '-')}" if field in given else _PREFIX + field.upper()
        raise LatteMixError(f"{source}={first['input']}: {first['msg']}.") from error
