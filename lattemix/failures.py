"""Run a command line: errors of the user become one sentence and exit code 1."""

import sys
from collections.abc import Callable
from typing import NoReturn

from model_store import LatteMixError

_EXTRAS = {  # by module: the extra that installs it
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
    "matplotlib": "calibrate",
    "pyarrow": "parquet",
    "ray": "ray",
    "scipy": "calibrate",
    "torch": "train",
    "tqdm": "client",
    "transformers": "train",
}


def run_command(command: Callable[[], None], program: str) -> NoReturn:
    """Run a command and exit; print expected errors as one sentence."""
    try:
        command()
    except LatteMixError as error:
        sys.exit(f"{program}: {error}")
    except OSError as error:  # a path that cannot be read or written
        path = f"{error.filename}: " if error.filename else ""
        sys.exit(f"{program}: {path}{error.strerror or error}.")
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        sys.exit(f"{program}: this needs {error.name}: pip install 'lattemix[{extra}]'.")
    sys.exit(0)
