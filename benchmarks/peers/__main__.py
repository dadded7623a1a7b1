"""Run one engine: calls come as JSON lines on standard input, results go to standard output.

python -m benchmarks.peers "CTranslate2 int8" CHECKPOINT DIRECTORY
"""

import json
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.peers import conversions, engines


def sentence_transformers(checkpoint: Path, directory: Path) -> engines.Peer:
    """Return sentence-transformers with its ONNX backend and its int8 export."""
    export = conversions.onnx_export(checkpoint, directory)
    return engines.SentenceTransformers(export, "onnx", file_name=conversions.QUANTISED)


SYSTEMS: dict[str, Callable[[Path, Path], engines.Peer]] = {
    "CTranslate2 int8": engines.CTranslate2,
    "ONNX Runtime int8": engines.OnnxRuntime,
    "OpenVINO int8": partial(engines.OpenVino, precision="int8"),
    "OpenVINO bf16": partial(engines.OpenVino, precision="bf16"),
    "sentence-transformers ONNX int8": sentence_transformers,
}


def main(name: str, checkpoint: Path, directory: Path) -> None:
    """Create a system, then call its methods until the input ends."""
    # Libraries print to standard output, so results go to a copy of it.
    results = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    system = SYSTEMS[name](checkpoint, directory)
    print(json.dumps(None), file=results, flush=True)
    for line in sys.stdin:
        method, arguments = json.loads(line)
        result = getattr(system, method)(*arguments)
        print(json.dumps(result), file=results, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
