"""ONNX graphs in float16, for CUDA."""

from collections.abc import Iterable

import numpy as np
from onnx import TensorProto

from lattemix.build.graph import Array, Embeddings, Graph, Norm
from model_store.manifest import Precision


class Float16Graph(Graph):
    """Weights and activations in float16, in the operators that CUDA has fused kernels for.

    A transformer has the nodes that ONNX Runtime's own optimiser makes of BERT. Their kernels sum
    matrix products, norms and the attention's softmax in float32. Logits are cast to float32 before
    the head's softmax.
    """

    precision: Precision = "fp16"

    def narrow(self, x: str) -> str:
        """Cast to float16."""
        return self.op("Cast", x, to=TensorProto.FLOAT16)

    def widen(self, x: str) -> str:
        """Cast to float32."""
        return self.op("Cast", x, to=TensorProto.FLOAT)

    def weight(self, name: str, value: Array) -> str:
        """Store an array in float16."""
        return self.constant(name, value.astype(np.float16))

    def linear_gelu(self, x: str, name: str, matrix: Array, bias: Array) -> str:
        """Apply a matrix; BiasGelu adds the bias."""
        product = self.op("MatMul", x, self.weight(f"{name}.weight", matrix))
        return self.fused("BiasGelu", product, self.weight(f"{name}.bias", bias))

    def linear_norm(
        self, x: str, skip: str, name: str, matrix: Array, bias: Array, norm: Norm
    ) -> str:
        """Apply a matrix; SkipLayerNormalization adds the bias and `skip`, and normalises."""
        product = self.op("MatMul", x, self.weight(f"{name}.weight", matrix))
        weights = (*self.norm_weights(norm), self.weight(f"{name}.bias", bias))
        return self.fused("SkipLayerNormalization", product, skip, *weights, epsilon=norm.epsilon)

    def embed(self, embeddings: Embeddings) -> tuple[str, str]:
        """Return the embeddings of `input_ids` [B, S, H] and the texts' lengths [B].

        CUDA has no fused attention kernel for a mask [B, S], but for lengths, up to compute
        capability 8.9. So padding must be on the right.
        """
        ids, mask = (
            self.op("Cast", name, to=TensorProto.INT32) for name in ("input_ids", "attention_mask")
        )
        words = self.weight("embeddings.word", embeddings.words)
        positions = self.weight("embeddings.position", embeddings.positions)
        inputs = [ids, "", words, positions, "", *self.norm_weights(embeddings.norm), mask]
        if embeddings.padding_id is not None:
            position_ids = self.position_ids(embeddings.padding_id)
            inputs.append(self.op("Cast", position_ids, to=TensorProto.INT32))
        epsilon = embeddings.norm.epsilon
        x = self.fused("EmbedLayerNormalization", *inputs, outputs=2, epsilon=epsilon)
        return x, f"{x}_1"

    def look_up_distributions(self, name: str, chunks: Iterable[Array], ids: str) -> str:
        """Return rows of a table stored in float16."""
        halves = (chunk.astype(np.float16) for chunk in chunks)
        return self.widen(super().look_up_distributions(name, halves, ids))
