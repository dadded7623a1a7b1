"""Check a model on a GPU: where its operators run, how exact and how fast it is."""

import json
import os
import shutil
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from lattemix import __version__, cuda
from lattemix.encoder import Encoder
from lattemix.labelled.measures import spearman
from lattemix.session import execution_providers
from lattemix.settings import ModelSettings
from lattemix.similarity import matrix
from lattemix.speed import Speed, full_rows, lengths, measure_speed
from model_store import Store

# float16 arithmetic, emulated on the CPU, changes probabilities of `default` by up to 0.003 and
# ranks its similarities like float32 to 0.9999.
MAX_DIFFERENCE = 0.01
MIN_AGREEMENT = 0.999

_ROWS = (1, 8, 64)  # sentences per batch, beside full batches
_NEW_ROWS = range(65, 97)  # sizes that nothing else here has
_EXECUTION_PROVIDERS = {"cuda": cuda.PROVIDER, "cpu": "CPUExecutionProvider"}
# A single character, more tokens than transformers read, repeated words, emoji, other scripts.
_ODD_TEXTS = ["a", "?", "the " * 6, "dog " * 600, "1 " * 300, "!" * 600, "\U0001f600" * 300]
_ODD_TEXTS += ["\u4f60\u597d", "\u041f\u0440\u0438\u0432\u0435\u0442"]


@dataclass(frozen=True)
class Check:
    """The outcome of one check."""

    name: str
    passed: bool
    result: str


@dataclass(frozen=True)
class Report:
    """What was checked and measured on a GPU."""

    model: str
    environment: dict[str, str]
    checks: list[Check]
    speeds: list[Speed]
    shapes: tuple[float, float]  # see `_shape_seconds`

    @property
    def passed(self) -> bool:
        """Whether all checks passed."""
        return all(check.passed for check in self.checks)

    def markdown(self) -> str:
        """Return the report as Markdown."""
        checks = [
            (check.name, "passed" if check.passed else "**failed**", check.result)
            for check in self.checks
        ]
        return "\n\n".join(
            [
                f"### {self.model} on {self.environment['GPU']}",
                _table(["", ""], list(self.environment.items())),
                _table(["check", "", "result"], checks),
                "Tokens per second, by tokens per sentence and sentences per batch, and the median "
                "duration of a batch:",
                self._speed_table(),
                "A batch of a size not seen before took {:.2f} ms, and {:.2f} ms when repeated "
                "(medians).".format(*(seconds * 1000 for seconds in self.shapes)),
            ]
        )

    def _speed_table(self) -> str:
        rows = [
            (
                f"{speed.length}",
                f"{speed.rows}",
                f"{speed.tokens:,.0f}",
                f"{speed.sentences:,.0f}",
                f"{speed.batch_seconds * 1000:.2f}",
            )
            for speed in self.speeds
        ]
        header = ["tokens", "sentences/batch", "tokens/s", "sentences/s", "ms/batch"]
        return _table(header, rows, right=True)


def check_gpu(
    settings: ModelSettings, seconds: float, provider: Literal["cuda", "cpu"] = "cuda"
) -> Report:
    """Check the model that the settings name, which the store must also have in fp32.

    Args:
        settings: the model, its store and the number of the GPU.
        seconds: duration of each measurement.
        provider: the device to check; tests use the CPU.

    Raises:
        LatteMixError: the GPU cannot be used, or the store lacks the model.
    """
    execution_providers(provider, settings.device_id)  # fails before the model is loaded
    settings = settings.model_copy(update={"provider": provider})
    encoder = Encoder.load(settings)
    store, manifest = Store(settings.store), encoder.manifest
    reference = Encoder(store.open(f"{manifest.name}:fp32"), provider="cpu")
    model = store.open(manifest.reference).model
    sizes = [
        (length, rows)
        for length in lengths(encoder)
        for rows in sorted({*_ROWS, full_rows(encoder, length)})
        if rows <= full_rows(encoder, length)
    ]
    return Report(
        manifest.reference,
        _environment(settings.device_id),
        [_check_placement(model, provider, settings.device_id), *_check_parity(encoder, reference)],
        [measure_speed(encoder, length, rows, seconds) for length, rows in sizes],
        _shape_seconds(encoder),
    )


def _check_placement(model: Path, provider: Literal["cuda", "cpu"], device_id: int) -> Check:
    """Check that no operator falls back to the CPU, and no tensor is copied between devices."""
    expected = _EXECUTION_PROVIDERS[provider]
    placement = _placement(model, execution_providers(provider, device_id))
    elsewhere = Counter(
        {
            operator: count
            for (place, operator), count in placement.items()
            if place != expected or operator.startswith("Memcpy")
        }
    )
    result = f"{placement.total() - elsewhere.total()} of {placement.total()} on {expected}"
    if elsewhere:
        listed = ", ".join(f"{count} {operator}" for operator, count in sorted(elsewhere.items()))
        result += f"; elsewhere or copies: {listed}"
    return Check("operators", not elsewhere, result)


def _placement(model: Path, providers: list[object]) -> Counter[tuple[str, str]]:
    """Count the operators of a run by execution provider, from ONNX Runtime's profile."""
    with TemporaryDirectory() as directory:
        options = ort.SessionOptions()
        options.log_severity_level = 3
        options.enable_profiling = True
        options.profile_file_prefix = str(Path(directory) / "profile")
        session = ort.InferenceSession(model, options, providers=providers)
        ids = np.zeros((2, 16), np.int64)
        pool = np.full((2, 1, 16), 1 / 16, np.float32)
        session.run(None, {"input_ids": ids, "attention_mask": ids + 1, "pool": pool})
        events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    runs = (event["args"] for event in events if event["name"].endswith("_kernel_time"))
    return Counter((run["provider"], run["op_name"]) for run in runs)


def _check_parity(encoder: Encoder, reference: Encoder) -> list[Check]:
    """Compare mixtures and similarities of everyday and odd texts with those of `reference`."""
    everyday = (files("lattemix.build") / "activations.txt").read_text(encoding="utf-8")
    texts = [*everyday.splitlines(), *_ODD_TEXTS]
    if encoder.static is not None:  # a static model rejects texts without words
        texts = everyday.splitlines()
    mixtures = encoder.encode(texts, "right").mixtures
    expected = reference.encode(texts, "right").mixtures
    difference = float(np.abs(mixtures - expected).max())
    agreement = _rank_agreement(encoder, mixtures, expected)
    about = f"{len(texts)} texts"
    metric = encoder.manifest.recommended_metric
    return [
        Check(
            "largest difference to fp32",
            difference <= MAX_DIFFERENCE,
            f"{difference:.1e} (limit {MAX_DIFFERENCE}), {about}",
        ),
        Check(
            "rank correlation with fp32",
            agreement >= MIN_AGREEMENT,
            f"{agreement:.5f} (at least {MIN_AGREEMENT}), {metric} of all pairs of {about}",
        ),
    ]


def _rank_agreement(
    encoder: Encoder, mixtures: NDArray[np.float32], expected: NDArray[np.float32]
) -> float:
    """Spearman's correlation of the similarities of all pairs: [N, L, C] each."""
    above = np.triu_indices(len(mixtures), k=1)
    scores, labels = (
        matrix(encoder.manifest.recommended_metric, x, x, encoder.centre)[above].astype(np.float64)
        for x in (mixtures, expected)
    )
    return float(spearman(scores, labels)(np.ones((1, len(scores))))[0])


def _shape_seconds(encoder: Encoder) -> tuple[float, float]:
    """Median duration of batches of new sizes, and of the same batches again.

    A library that plans every new size makes a server slow, whose batches have thousands of sizes.
    """
    first: list[float] = []
    again: list[float] = []
    for rows in _NEW_ROWS:
        batch = [encoder.probe] * rows
        for times in (first, again):
            start = time.perf_counter()
            encoder.run(batch)
            times.append(time.perf_counter() - start)
    return statistics.median(first), statistics.median(again)


def _environment(device_id: int) -> dict[str, str]:
    """Versions and hardware; nvidia-smi knows the GPU."""
    environment = {"GPU": "unknown GPU (no nvidia-smi)"}
    fields = {
        "GPU": "name",
        "driver": "driver_version",
        "compute capability": "compute_cap",
        "memory": "memory.total",
    }
    program = shutil.which("nvidia-smi")
    if program:
        query = f"--query-gpu={','.join(fields.values())}"
        command = [program, query, "--format=csv,noheader", f"--id={_gpu_name(device_id)}"]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        if outcome.returncode == 0:
            values = (value.strip() for value in outcome.stdout.split(","))
            environment = dict(zip(fields, values, strict=False))
    return environment | {
        "Latte-Mix": __version__,
        "ONNX Runtime": ort.__version__,
        "CUDA of ONNX Runtime": getattr(ort, "cuda_version", "") or "none",
    }


def _gpu_name(device_id: int) -> str:
    """Name of a GPU for nvidia-smi, whose numbers ignore CUDA_VISIBLE_DEVICES."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") or None
    names = visible.split(",") if visible else []
    return names[device_id].strip() if device_id < len(names) else str(device_id)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], right: bool = False) -> str:
    """Return a table in Markdown."""
    rule = ["---:" if right else "---"] * len(header)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))
