"""The description of a loaded model."""

from typing import get_args

from lattemix import __version__
from lattemix.encoder import Encoder
from lattemix.responses import ModelInfo
from model_store import Metric


def model_info(encoder: Encoder) -> ModelInfo:
    """Describe a loaded model."""
    manifest = encoder.manifest
    supported = [m for m in get_args(Metric) if m != "centred" or encoder.centre is not None]
    return ModelInfo(
        model=manifest.name,
        fingerprint=manifest.fingerprint,
        precision=manifest.precision,
        precision_reason=encoder.reason,
        provider=encoder.provider,
        latent_dims=manifest.latent_dims,
        classes=manifest.classes,
        temperature=manifest.temperature,
        metrics=sorted(supported, key=lambda metric: metric != manifest.recommended_metric),
        recommended_metric=manifest.recommended_metric,
        calibration=encoder.calibration,
        backbone=manifest.backbone,
        corpus=manifest.head.corpus,
        parity=manifest.parity,
        evaluation=dict(manifest.evaluation),
        model_id=manifest.reference,
        model_sha=manifest.files["model.onnx"].sha256,
        model_dtype=manifest.precision,
        max_input_length=manifest.max_tokens,
        max_batch_tokens=encoder.token_budget,
        version=__version__,
    )
