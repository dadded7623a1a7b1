"""The cache directory."""

import os
import tempfile
from pathlib import Path


def cache_root() -> Path:
    """Return `LATTEMIX_CACHE`, or `lattemix` in the user's cache directory."""
    if chosen := os.environ.get("LATTEMIX_CACHE"):
        return Path(chosen)
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # a container's user may have no home directory
        return Path(tempfile.gettempdir()) / f"lattemix-{os.getuid()}"
    return caches / "lattemix"
