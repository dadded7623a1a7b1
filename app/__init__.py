"""The service: text in, mixtures and similarities out."""

import os
from importlib.metadata import version

# ONNX Runtime reports its use to its maker by default since 1.29. A service that reads people's
# sentences reports to nobody. It must be said before onnxruntime is imported.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"

__version__ = version("lattemix")
