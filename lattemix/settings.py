"""Settings of a loaded model: environment variables LATTEMIX_*, or arguments of the same name."""

from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from model_store import LatteMixError
from model_store.store import default_root

Provider = Literal["auto", "cpu", "cuda"]
# How to handle a text over the model's maximum length: reject it, remove tokens from one side, or
# split it into windows.
Truncate = Literal["error", "right", "left", "window"]

PREFIX = "LATTEMIX_"
MAX_WINDOWS = 64


class ModelSettings(BaseSettings):
    """Which model to load, and how to run it. `LATTEMIX_<FIELD>` sets a field."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="forbid"
    )

    model: str = Field("default", description="Model: `name` or `name:precision`.")
    store: Path = Field(
        default_factory=default_root, description="Directory of the assembled models."
    )
    provider: Provider = Field(
        "auto", description="Device: `auto`, `cpu` or `cuda`; `auto` prefers CUDA."
    )
    device_id: int = Field(0, ge=0, description="GPU index.")
    threads: int = Field(
        0,
        ge=0,
        le=1024,
        description="Intra-op threads per batch (CPU). 0: one single-threaded batch per core; an "
        "idle server uses all cores for one batch.",
    )
    token_budget: int = Field(
        0, ge=0, description="Tokens per batch, padding included. 0: chosen by a start-up test."
    )
    truncate: Truncate = Field(
        "window",
        description="Default for texts over the model's maximum length: `error` rejects them, "
        "`right` or `left` removes tokens from that side, `window` averages overlapping windows.",
    )
    max_windows: int = Field(
        MAX_WINDOWS, ge=1, description="Maximum windows per text; longer texts are rejected."
    )

    @field_validator("store")
    @classmethod
    def _expand_home(cls, path: Path) -> Path:
        return path.expanduser()


S = TypeVar("S", bound=BaseSettings)


def read_settings(kind: type[S], secrets: tuple[str, ...] = (), **overrides: Any) -> S:
    """Read settings from the environment; arguments other than None take precedence.

    Raises:
        LatteMixError: a value is invalid; the message names its flag or variable. Values of the
            fields named in `secrets` are not shown.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return kind(**given)
    except ValidationError as error:
        first = error.errors()[0]
        field = str(first["loc"][0])
        flag, variable = f"--{field.replace('_', '-')}", PREFIX + field.upper()
        source = flag if field in given else variable
        value = "..." if field in secrets else first["input"]
        message = first["msg"].removeprefix("Value error, ")
        raise LatteMixError(f"{source}={value}: {message}.") from None
