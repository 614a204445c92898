"""Logits and loss of a dense decoder on one device, in plain PyTorch and plain autograd.

The formulas are those of ``model/numerics.py``; nothing is fused, saved twice or cut. It shares the model's data with
the runtime and none of its code. Tensors are named as ``model/running.py`` says; all of one dtype, float64 or float32,
in which everything is computed (angles are computed in float64 and rounded). Dropout is left out.

Sizes: B sequences, L positions, D hidden, H heads, K key-value heads, N elements of a head, F feed-forward, V words.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional

from meshwright.model.architecture import Architecture
from meshwright.model.graph import ModelGraph
from meshwright.model.numerics import Numerics
from meshwright.model.running import TOKEN_TABLE, named_parameters, numerics_to_run
from meshwright.runtime.reference.attention import attended
from meshwright.runtime.reference.elementwise import ACTIVATIONS, capped, normed

NO_LABEL = -100


def reference_loss(
    model: ModelGraph, tensors: Mapping[str, Tensor], tokens_BL: Tensor, labels_BL: Tensor, divisor: float
) -> Tensor:
    """Cross-entropy summed over all labels but ``NO_LABEL``, divided by ``divisor``: the global count of labels."""
    logits_BLV = reference_logits(model, tensors, tokens_BL)
    logits_TV, labels_T = logits_BLV.flatten(0, 1), labels_BL.flatten()
    total = functional.cross_entropy(logits_TV, labels_T, ignore_index=NO_LABEL, reduction="sum")
    return total / divisor


def reference_logits(model: ModelGraph, tensors: Mapping[str, Tensor], tokens_BL: Tensor) -> Tensor:
    """The logits of every position. Raises UnsupportedError for a model whose arithmetic is not supported."""
    numerics = numerics_to_run(model.architecture)
    missing = named_parameters(model).keys() - tensors.keys()
    assert not missing, f"tensors are missing: {sorted(missing)}"
    decoder = Decoder(model.architecture, numerics, tensors)
    hidden_BLD = decoder.embedded(tokens_BL)
    for layer in range(model.architecture.layers):
        hidden_BLD = decoder.after_attention(layer, hidden_BLD)
        hidden_BLD = decoder.after_feedforward(layer, hidden_BLD)
    return decoder.logits(hidden_BLD)


@dataclass(frozen=True, slots=True)
class Decoder:
    """The parts of a decoder, one after another; ``tensors`` may be those of some layers alone."""

    arch: Architecture
    numerics: Numerics
    tensors: Mapping[str, Tensor]

    def embedded(self, tokens_BL: Tensor) -> Tensor:
        """Token ids → the stream before the first layer."""
        x_BLD = self.tensors[TOKEN_TABLE][tokens_BL]
        x_BLD = x_BLD * x_BLD.new_tensor(self.numerics.embedding_multiplier)
        if self.arch.positions == "learned":
            x_BLD = x_BLD + self.tensors["embed.embed_positions.weight"][: tokens_BL.shape[1]]
        return self._norm("embed.embedding_layernorm", x_BLD) if self.arch.embedding_norm else x_BLD

    def after_attention(self, layer: int, x_BLD: Tensor) -> Tensor:
        """The stream with a layer's attention added."""
        unit = f"layers.{layer}"
        y_BLD = self._norm(f"{unit}.input_layernorm", x_BLD)
        q_BLHN = self._heads(unit, "q", y_BLD, self.arch.heads)
        k_BLKN = self._heads(unit, "k", y_BLD, self.arch.kv_heads)
        v_BLKN = self._heads(unit, "v", y_BLD, self.arch.kv_heads)
        y_BLHN = attended(self.numerics, layer, self.arch.windows[layer], q_BLHN, k_BLKN, v_BLKN)
        y_BLD = self._linear(f"{unit}.self_attn.o_proj", y_BLHN.flatten(2))
        if self.arch.norms_per_layer == 4:
            y_BLD = self._norm(f"{unit}.post_attention_layernorm", y_BLD)
        return x_BLD + y_BLD * self.numerics.residual_multiplier

    def after_feedforward(self, layer: int, x_BLD: Tensor) -> Tensor:
        """The stream with a layer's feed-forward added."""
        unit, four = f"layers.{layer}", self.arch.norms_per_layer == 4
        before = "pre_feedforward_layernorm" if four else "post_attention_layernorm"
        y_BLD = self._norm(f"{unit}.{before}", x_BLD)
        activation = ACTIVATIONS[self.numerics.activation]
        y_BLF = self._linear(f"{unit}.mlp.up_proj", y_BLD)
        if self.arch.gated:
            y_BLF = activation(self._linear(f"{unit}.mlp.gate_proj", y_BLD)) * y_BLF
        else:
            y_BLF = activation(y_BLF)
        y_BLD = self._linear(f"{unit}.mlp.down_proj", y_BLF)
        if four:
            y_BLD = self._norm(f"{unit}.post_feedforward_layernorm", y_BLD)
        return x_BLD + y_BLD * self.numerics.residual_multiplier

    def logits(self, x_BLD: Tensor) -> Tensor:
        """The last stream → logits."""
        table_VD = self.tensors[TOKEN_TABLE if self.arch.tied_embeddings else "head.lm_head.weight"]
        logits_BLV = self._norm("head.norm", x_BLD) @ table_VD.T / self.numerics.logit_divisor
        return capped(logits_BLV, self.numerics.logit_soft_cap)

    def _heads(self, unit: str, which: str, x_BLD: Tensor, heads: int) -> Tensor:
        """Queries, keys or values by heads, after their head norms."""
        x_BLHN = self._linear(f"{unit}.self_attn.{which}_proj", x_BLD).unflatten(2, (heads, -1))
        if self.arch.qk_norm and which != "v":
            return self._norm(f"{unit}.self_attn.{which}_norm", x_BLHN)
        return x_BLHN

    def _linear(self, name: str, x: Tensor) -> Tensor:
        y = x @ self.tensors[f"{name}.weight"].T
        bias = self.tensors.get(f"{name}.bias")
        return y if bias is None else y + bias

    def _norm(self, name: str, x: Tensor) -> Tensor:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors.get(f"{name}.bias")
        x = normed(x, centred=self.arch.norm == "layernorm", epsilon=self.arch.norm_epsilon)
        x = x * (self.numerics.norm_offset + weight)
        return x if bias is None else x + bias
