"""All parameters of the plan: measured costs of the host, and published speeds of GPUs.

Change them here; `python -m benchmarks.capacity plan` prints what follows from them.
"""

from typing import NamedTuple

from benchmarks.capacity.simulation import HostCost, Model

# CPU seconds of a request: threads of the event loop, of the tokenizer and of everything else that
# is not a batch, and of batches. By `python -m benchmarks.capacity host` (median of three rounds).
HOST_COSTS = {
    "1 sentence, npy": HostCost(loop=230e-6, tokenizer=0.0, model=40e-6),
    "1 pair": HostCost(loop=312e-6, tokenizer=0.0, model=37e-6),
    "32 sentences, npy": HostCost(loop=827e-6, tokenizer=470e-6, model=309e-6),
    "32 sentences, JSON": HostCost(loop=1022e-6, tokenizer=1898e-6, model=302e-6),
    "32 pairs": HostCost(loop=1337e-6, tokenizer=1586e-6, model=621e-6),
    "8 texts of 256 tokens, npy": HostCost(loop=523e-6, tokenizer=820e-6, model=171e-6),
}
RESPONSE_BYTES = {
    "1 sentence, npy": 8128,
    "1 pair": 153,
    "32 sentences, npy": 256_128,
    "32 sentences, JSON": 752_256,
    "32 pairs": 1566,
    "8 texts of 256 tokens, npy": 64_128,
}

# The int8 model on two cores, as the service itself measures it when it starts.
CPU_MODEL = Model(
    token_seconds=47.7e-6, batch_seconds=0.49e-3, token_budget=328, threads=2, cores=True
)
CPU_CORES = 2.0
CLIENT_SECONDS = 40e-6  # of the load generator per request, on the same cores

# FLOPs of a token's matrix products, without attention's: twice 12 layers of 12 * 768 ** 2 in
# BERT-base, 24 of 12 * 1024 ** 2 in BERT-large, 6 of 12 * 384 ** 2 and a head of 384 * 2000 in
# `default`.
_FLOPS = {"BERT-base": 170e6, "BERT-large": 604e6, "default": 23e6}

# Narrow layers use a GPU worse than wide ones: their matrix products are smaller, and norms,
# activations and copies, which memory bounds, shrink by a fourth only where products shrink by an
# eighth. A judgement, not a measurement.
EFFICIENCY = 0.5

PCIE_BYTES = 12e9  # per second from pinned memory: half of what PCIe 4.0 x16 can do
NETWORK_BYTES = 25e9 / 8  # per second
HOST_CORES = 32
MIXTURE_BYTES = 8000


class Gpu(NamedTuple):
    """A GPU and a published speed."""

    name: str
    model: str  # which was measured
    tokens_per_second: float
    batch_seconds: float  # one sentence of 32 tokens through half of BERT-base's layers
    source: str

    @property
    def default_tokens(self) -> float:
        """Tokens of `default` per second, scaled by FLOPs."""
        return self.tokens_per_second * _FLOPS[self.model] / _FLOPS["default"] * EFFICIENCY

    def served(self) -> Model:
        """Service times of `default` in fp16."""
        return Model(
            1 / self.default_tokens,
            self.batch_seconds,
            token_budget=16_384,
            length_multiple=8,
        )


_FT = "FasterTransformer, bert_guide.md (2021): 32 x 32 tokens, PyTorch, fp16"
_TRT = "TensorRT, demo/BERT (April 2026): 128 x 128 tokens, fp16"
_INFINITY = (
    "infinity, benchmarking.md (March 2024): 256 texts of 450 tokens, onnx-gpu fp16, over HTTP"
)

GPUS = [
    Gpu("T4", "BERT-base", 32 * 32 / 8.51e-3, 1.72e-3 / 2, _FT),
    Gpu("A10G", "BERT-base", 32 * 32 / 3.92e-3, 1.06e-3 / 2, f"{_FT} (A10)"),
    Gpu("L4", "BERT-large", 0.41 * 115_000, 1.06e-3 / 2, _INFINITY),
    Gpu("A100", "BERT-base", 128 * 128 / 15.15e-3, 0.93e-3 / 2, _TRT),
    # No published figure at hand: A100's times the ratio of memory bandwidths (3.35 and 1.56 TB/s).
    Gpu("H100", "BERT-base", 128 * 128 / 15.15e-3 * 2.15, 0.48e-3 / 2, f"{_TRT}, A100 x 2.15"),
]
