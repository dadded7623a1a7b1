"""How a command line ends: well, or with one sentence."""

import sys
from collections.abc import Callable
from typing import NoReturn

from model_store import LatteMixError

_EXTRAS = {
    "fastapi": "cpu",
    "onnxruntime": "cpu",
    "orjson": "client",
    "threadpoolctl": "cpu",
    "tokenizers": "cpu",
    "uvicorn": "cpu",
    "huggingface_hub": "export",
    "onnx": "export",
    "safetensors": "export",
    "httpx": "client",
    "matplotlib": "train",
    "pyarrow": "parquet",
    "ray": "ray",
    "scipy": "train",
    "torch": "train",
    "tqdm": "client",
    "transformers": "train",
}


def complete(command: Callable[[], None], program: str) -> NoReturn:
    """Run a command line so that a failure is one sentence and a non-zero exit."""
    try:
        command()
    except LatteMixError as error:
        sys.exit(f"{program}: {error}")
    except OSError as error:  # a path that cannot be read or written, whoever met it
        where = f"{error.filename}: " if error.filename else ""
        sys.exit(f"{program}: {where}{error.strerror or error}.")
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        sys.exit(f"{program}: this needs {error.name}: pip install 'lattemix[{extra}]'.")
    sys.exit(0)
