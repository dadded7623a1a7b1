"""Building artifacts: a backbone and a head become one ONNX graph, without torch."""
