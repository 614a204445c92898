"""Attention of a decoder to the result of its text encoder, as a chain of operators.

norm → enter → q; the encoder's result → enter → k and v; attention → o → leave → residual. The stage holds the
encoder's result once for all layers.
"""

from meshwright.model.architecture import Architecture
from meshwright.model.operators.data_flow import ENCODER
from meshwright.model.operators.operator_types import (
    Attention,
    EnterTensor,
    LeaveTensor,
    Linear,
    Norm,
    Operator,
    Residual,
)
from meshwright.model.operators.parameter_tensors import linear_tensors, norm_tensors


def cross_attention_part(arch: Architecture) -> tuple[Operator, ...]:
    """Return the operators by which a decoder layer attends to the encoder's result."""
    width = arch.heads * arch.head_dim
    norm = norm_tensors("cross_attention_layernorm", arch.hidden, arch.norm)
    return (
        Norm(name="cross_norm", width=arch.hidden, parameters=norm),
        EnterTensor(name="enter_cross", width=arch.hidden),
        Linear(
            name="cross_q",
            place="tensor",
            inputs=arch.hidden,
            outputs=width,
            split="column",
            parameters=linear_tensors("cross_attn.q_proj", width, arch.hidden, "column", arch.qkv_bias),
        ),
        EnterTensor(name="enter_memory", width=arch.hidden, tokens="encoder", reads=(ENCODER,)),
        Linear(
            name="cross_kv",
            place="tensor",
            inputs=arch.hidden,
            outputs=2 * width,
            split="column",
            shared_input=True,
            tokens="encoder",
            parameters=tuple(
                tensor
                for name in ("k_proj", "v_proj")
                for tensor in linear_tensors(
                    f"cross_attn.{name}", width, arch.hidden, "column", arch.qkv_bias
                )
            ),
        ),
        Attention(
            name="cross_attention",
            place="tensor",
            heads=arch.heads,
            kv_heads=arch.heads,
            qk_dim=arch.head_dim,
            v_dim=arch.head_dim,
            window=None,
            kv_width=2 * width,
            dropout=arch.dropout,
            causal=False,
            keys="encoder",
            reads=("cross_q", "cross_kv"),
        ),
        Linear(
            name="cross_o",
            place="tensor",
            inputs=width,
            outputs=arch.hidden,
            split="row",
            parameters=linear_tensors("cross_attn.o_proj", arch.hidden, width, "row", arch.output_bias),
        ),
        LeaveTensor(name="leave_cross", width=arch.hidden),
        Residual(name="cross_residual", width=arch.hidden, dropout=arch.dropout),
    )
