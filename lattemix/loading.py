"""Loading a model; a shipped one is assembled first."""

import sys
from pathlib import Path

from lattemix.encoder import Encoder
from lattemix.model import Model
from lattemix.session import likely_device
from lattemix.settings import ModelSettings, Provider, read_settings
from model_store import LatteMixError, Store
from model_store.choice import FASTEST
from model_store.store import HEADS


def load(
    model: str | None = None,
    *,
    store: str | Path | None = None,
    provider: Provider | None = None,
    threads: int | None = None,
    device_id: int | None = None,
) -> Model:
    """Load a model.

    A shipped model named without a precision is assembled first if the store has none of its
    precisions.

    Example:
        ```python
        >>> import lattemix
        >>> model = lattemix.load()
        >>> model
        Model('default:int8', provider='cpu')

        ```

    Args:
        model: `name` or `name:precision`; else `LATTEMIX_MODEL`, or `default`.
        store: directory of the assembled models; else `LATTEMIX_STORE`.
        provider: `auto`, `cpu` or `cuda`; else `LATTEMIX_PROVIDER`.
        threads: intra-op threads per batch (CPU); else `LATTEMIX_THREADS`.
        device_id: GPU index; else `LATTEMIX_DEVICE_ID`.

    Raises:
        LatteMixError: there is no such model, or it cannot run on the device.
    """
    settings = read_settings(
        ModelSettings,
        model=model,
        store=store,
        provider=provider,
        threads=threads,
        device_id=device_id,
    )
    assemble_if_shipped(settings)
    return Model(Encoder.load(settings), settings.truncate)


def assemble_if_shipped(settings: ModelSettings) -> None:
    """Assemble a model whose head is shipped, if the store has no precision of it.

    It is assembled in the fastest precision on the device.
    """
    device = likely_device(settings.provider)
    name, _, precision = settings.model.partition(":")
    head, store = HEADS / name, Store(settings.store)
    if precision or not head.is_dir() or store.precisions(name):
        return
    try:
        from lattemix.build.assemble import assemble
    except ModuleNotFoundError as error:
        raise LatteMixError(
            f"{settings.store} has no model {name!r}, and assembling it needs {error.name}: "
            "pip install 'lattemix[export]'."
        ) from error
    assemble(head, store, name, tell=_announce, precisions=[FASTEST[device]])


def _announce(message: str) -> None:
    """Show a step of the assembly: it takes up to a minute, the first time."""
    print(f"lattemix: {message}", file=sys.stderr, flush=True)
