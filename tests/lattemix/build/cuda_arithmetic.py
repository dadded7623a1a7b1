"""The arithmetic of ONNX Runtime's CUDA kernels in torch on a CPU.

A CPU session computes the products, attention and gelu of a float16 graph in float32, and so
shows neither their overflow nor their rounding. Here every tensor has the type that the graph gives
it. Kernels sum in float32 where those in onnxruntime/contrib_ops/cuda do: matrix products by
cuBLAS, norms, and the attention's softmax.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper
from torch import Tensor

# Products that a tensor core adds up before it rounds to its accumulator.
_TENSOR_CORE_DEPTH = 16


class CudaArithmetic:
    """Runs a graph node by node."""

    def __init__(
        self, model: onnx.ModelProto, widen: bool = False, half_attention: bool = False
    ) -> None:
        """Read a graph.

        Args:
            model: the graph.
            widen: compute in float32 throughout, on weights rounded to float16.
            half_attention: sum the attention's products in float16, as the fused kernels may.
        """
        self._graph = model.graph
        self._widen = widen
        self._half_attention = half_attention
        self.largest = 0.0  # largest absolute value of a float16 tensor

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Return the mixtures; raise OverflowError at the first infinity or NaN."""
        tensors = {name: torch.from_numpy(value) for name, value in feeds.items()}
        for initializer in self._graph.initializer:
            value = torch.from_numpy(numpy_helper.to_array(initializer).copy())
            tensors[initializer.name] = self._type(value)
        for node in self._graph.node:
            inputs = [tensors[name] if name else None for name in node.input]
            attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
            result = getattr(self, node.op_type)(*inputs, **attributes)
            results = result if isinstance(result, tuple) else (result,)
            for name, value in zip(node.output, results, strict=True):
                tensors[name] = self._type(value)
                self._check(node.name, tensors[name])
        mixture: NDArray[np.float32] = tensors[self._graph.output[0].name].numpy()
        return mixture

    def _type(self, x: Tensor) -> Tensor:
        return x.float() if self._widen and x.dtype == torch.half else x

    def _check(self, name: str, x: Tensor) -> None:
        if not torch.isfinite(x).all():
            raise OverflowError(name)
        if x.dtype == torch.half:
            self.largest = max(self.largest, float(x.abs().max()))

    # Operators of ONNX.

    def Cast(self, x: Tensor, to: int) -> Tensor:  # noqa: N802
        name = helper.tensor_dtype_to_np_dtype(to).name
        return x.to(getattr(torch, name))

    def Gather(self, table: Tensor, ids: Tensor) -> Tensor:  # noqa: N802
        return table[ids]

    def MatMul(self, a: Tensor, b: Tensor) -> Tensor:  # noqa: N802
        return (a.float() @ b.float()).to(a.dtype)

    def Add(self, a: Tensor, b: Tensor) -> Tensor:  # noqa: N802
        return a + b

    def Sub(self, a: Tensor, b: Tensor) -> Tensor:  # noqa: N802
        return a - b

    def Mul(self, a: Tensor, b: Tensor) -> Tensor:  # noqa: N802
        return a * b

    def Div(self, a: Tensor, b: Tensor) -> Tensor:  # noqa: N802
        return a / b

    def Max(self, a: Tensor, b: Tensor) -> Tensor:  # noqa: N802
        return torch.maximum(a, b)

    def Relu(self, x: Tensor) -> Tensor:  # noqa: N802
        return x.relu()

    def ReduceL2(self, x: Tensor, axes: list[int], keepdims: int) -> Tensor:  # noqa: N802
        return torch.linalg.vector_norm(x, dim=axes, keepdim=bool(keepdims))

    def Reshape(self, x: Tensor, shape: Tensor) -> Tensor:  # noqa: N802
        return x.reshape([x.shape[i] if size == 0 else size for i, size in enumerate(shape)])

    def Softmax(self, x: Tensor, axis: int) -> Tensor:  # noqa: N802
        return x.float().softmax(axis).to(x.dtype)

    def Identity(self, x: Tensor) -> Tensor:  # noqa: N802
        return x

    # ONNX Runtime's own operators.

    def EmbedLayerNormalization(  # noqa: N802
        self,
        ids: Tensor,
        _segment_ids: None,
        words: Tensor,
        positions: Tensor,
        _segments: None,
        weight: Tensor,
        bias: Tensor,
        mask: Tensor,
        epsilon: float,
    ) -> tuple[Tensor, Tensor]:
        x = words[ids] + positions[: ids.shape[1]]  # [B, S, H]
        return _normalise(x, weight, bias, epsilon), mask.cumprod(1).sum(1)

    def SkipLayerNormalization(  # noqa: N802
        self,
        x: Tensor,
        skip: Tensor,
        weight: Tensor,
        norm_bias: Tensor,
        bias: Tensor,
        epsilon: float,
    ) -> Tensor:
        return _normalise(x + bias + skip, weight, norm_bias, epsilon)

    def BiasGelu(self, x: Tensor, bias: Tensor) -> Tensor:  # noqa: N802
        x = x + bias
        erf = torch.erf((x * math.sqrt(0.5)).float()).to(x.dtype)
        return x * 0.5 * (1 + erf)

    def Attention(  # noqa: N802
        self, x: Tensor, weight: Tensor, bias: Tensor, lengths: Tensor, num_heads: int
    ) -> Tensor:
        rows, length, width = x.shape
        projected = (self.MatMul(x, weight) + bias).reshape(rows, length, 3, num_heads, -1)
        query, key, value = projected.permute(2, 0, 3, 1, 4)  # [B, heads, S, H / heads]
        scale = 1 / math.sqrt(query.shape[-1])
        if self._half_attention:
            scores = _half_product(query * scale, key.transpose(2, 3))  # [B, heads, S, S]
        else:
            scores = (query.float() @ key.float().transpose(2, 3) * scale).to(x.dtype)
        padding = torch.arange(length) >= lengths[:, None]  # [B, S]
        scores = scores.float().masked_fill(padding[:, None, None], -math.inf)
        weights = scores.softmax(-1).to(x.dtype)
        product = _half_product if self._half_attention else self.MatMul
        context = product(weights, value)  # [B, heads, S, H / heads]
        return context.transpose(1, 2).reshape(rows, length, width)


def _normalise(x: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """Apply a layer norm, with sums and differences in float32."""
    wide = x.float()
    mean = wide.mean(-1, keepdim=True)
    variance = (wide * wide).mean(-1, keepdim=True) - mean * mean
    normal = weight.float() * (wide - mean) * torch.rsqrt(variance + epsilon) + bias.float()
    return normal.to(x.dtype)


def _half_product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices with a float16 accumulator."""
    total = torch.zeros(*a.shape[:-1], b.shape[-1], dtype=a.dtype)
    for start in range(0, a.shape[-1], _TENSOR_CORE_DEPTH):
        part = slice(start, start + _TENSOR_CORE_DEPTH)
        total = (total.float() + a[..., part].float() @ b[..., part, :].float()).to(a.dtype)
    return total
