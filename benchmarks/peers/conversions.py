"""The backbone in the formats of other engines, converted once per directory, offline."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

# A sentence-transformers directory in `directory`. infinity's engine `optimum` takes
# *quantize*.onnx from it.
EXPORT = "sentence-transformers"
PLAIN, QUANTISED = "onnx/model.onnx", "model_quantized.onnx"
_CALIBRATION = Path(__file__).parents[2] / "lattemix" / "build" / "activations.txt"


def ctranslate2_int8(checkpoint: Path, directory: Path) -> Path:
    """Return the checkpoint in CTranslate2's format."""
    from ctranslate2.converters import TransformersConverter

    target = directory / "ctranslate2"
    if not target.exists():
        TransformersConverter(str(checkpoint)).convert(str(target), quantization="int8")
    return target


def onnx_export(checkpoint: Path, directory: Path) -> Path:
    """Return a directory of sentence-transformers with an ONNX model in float32 and in int8."""
    from sentence_transformers import SentenceTransformer, export_dynamic_quantized_onnx_model

    target = directory / EXPORT
    if not target.exists():
        model = SentenceTransformer(
            str(checkpoint), device="cpu", backend="onnx", model_kwargs={"export": True}
        )
        model.save_pretrained(str(target))
        export_dynamic_quantized_onnx_model(
            model, "avx512_vnni", str(target), file_suffix="quantized"
        )
        (target / "onnx" / QUANTISED).rename(target / QUANTISED)  # infinity looks for it there
    return target


def onnxruntime_int8(checkpoint: Path, directory: Path) -> Path:
    """Return the export, fused by ONNX Runtime's transformer optimiser and quantised per column.

    Attention and SkipLayerNormalization are slower than their parts on a CPU, so they stay apart.
    """
    import onnx
    from onnxruntime.quantization import quantize_dynamic
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model
    from transformers import AutoConfig

    fused, target = directory / "fused.onnx", directory / "fused-int8.onnx"
    if not target.exists():
        config = AutoConfig.from_pretrained(checkpoint)
        source = onnx_export(checkpoint, directory) / PLAIN
        fusions = FusionOptions("bert")
        fusions.enable_attention = fusions.enable_skip_layer_norm = False
        model = optimize_model(
            str(source),
            "bert",
            num_heads=config.num_attention_heads,
            hidden_size=config.hidden_size,
            optimization_options=fusions,
        )
        model.save_model_to_file(str(fused))
        options = {"DefaultTensorType": onnx.TensorProto.FLOAT}
        quantize_dynamic(fused, target, per_channel=True, extra_options=options)
    return target


def openvino_model(checkpoint: Path, directory: Path, precision: str) -> Path:
    """Return the export in OpenVINO's format, for int8 quantised by NNCF."""
    import nncf
    import openvino

    target = directory / f"openvino-{precision}.xml"
    if not target.exists():
        model = openvino.convert_model(onnx_export(checkpoint, directory) / PLAIN)
        if precision == "int8":
            dataset = nncf.Dataset(list(_calibration_inputs(checkpoint, model)))
            model = nncf.quantize(model, dataset, model_type=nncf.ModelType.TRANSFORMER)
        openvino.save_model(model, target, compress_to_fp16=False)
    return target


def _calibration_inputs(checkpoint: Path, model: Any) -> Iterable[dict[str, Any]]:
    """The sentences that calibrate our own int8 models, one at a time."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    tokenizer.no_padding()
    names = [each.get_any_name() for each in model.inputs]
    for text in _CALIBRATION.read_text(encoding="utf-8").splitlines():
        ids = np.array([tokenizer.encode(text).ids])
        feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
        feeds["token_type_ids"] = np.zeros_like(ids)
        yield {name: feeds[name] for name in names}
