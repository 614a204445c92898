"""One kernel for each kind of operator: ``KERNELS`` is the table, ``kernel_of`` makes one for a layer on a rank.

A kind that is not in the table is refused by name before a run (``plan/runnable.py``).
"""

from collections.abc import Callable, Mapping
from typing import Any

from meshwright.model.graph import Block
from meshwright.model.operators import (
    Activation,
    Attention,
    Combine,
    Dispatch,
    Embedding,
    EnterTensor,
    ExpertActivation,
    ExpertLinear,
    GatedNorm,
    LeaveTensor,
    Linear,
    LinearAttention,
    Loss,
    Norm,
    Operator,
    Residual,
)
from meshwright.runtime.kernels.activation import ActivationKernel
from meshwright.runtime.kernels.attention import AttentionKernel
from meshwright.runtime.kernels.boundary import BoundaryKernel, ResidualKernel
from meshwright.runtime.kernels.dispatch import CombineKernel, DispatchKernel
from meshwright.runtime.kernels.embedding import EmbeddingKernel
from meshwright.runtime.kernels.expert_linear import ExpertLinearKernel
from meshwright.runtime.kernels.kernel import Kernel, Setting
from meshwright.runtime.kernels.latent import (
    NORMS,
    PARTS,
    CompressedNormKernel,
    LatentAttentionKernel,
    WideningKernel,
)
from meshwright.runtime.kernels.linear import JoiningKernel, LinearKernel
from meshwright.runtime.kernels.linear_attention import GatedNormKernel, LinearAttentionKernel
from meshwright.runtime.kernels.loss import LossKernel, ShareOfLossKernel
from meshwright.runtime.kernels.norm import HeadNormKernel, NormKernel
from meshwright.runtime.kernels.positions import PositionsKernel
from meshwright.runtime.kernels.router import ROUTER, RouterKernel
from meshwright.runtime.kernels.turned_heads import head_widths

KERNELS: Mapping[type[Operator], Callable[[Any, Setting], Kernel]] = {
    Activation: ActivationKernel,
    Attention: AttentionKernel,
    Combine: CombineKernel,
    Dispatch: DispatchKernel,
    Embedding: EmbeddingKernel,
    EnterTensor: BoundaryKernel,
    ExpertActivation: ActivationKernel,
    ExpertLinear: ExpertLinearKernel,
    GatedNorm: GatedNormKernel,
    LeaveTensor: BoundaryKernel,
    Linear: LinearKernel,
    LinearAttention: LinearAttentionKernel,
    Loss: LossKernel,
    Norm: NormKernel,
    Residual: ResidualKernel,
}
"""What the runtime can execute, by kind of operator."""
HEADS = ("q_norm", "k_norm")
LATENT: Mapping[str, Callable[[Any, Setting], Kernel]] = {
    **dict.fromkeys(NORMS, CompressedNormKernel),
    **dict.fromkeys(PARTS, WideningKernel),
    "attention": LatentAttentionKernel,
}
"""What executes the operators of latent attention, by name."""


def kernel_of(op: Operator, block: Block, setting: Setting) -> Kernel:
    """The kernel of an operator.

    Norms of heads know which part of their block's projection they work on; of a vocabulary that is spread over
    pipeline ranks the loss has a part, and positions stand by themselves.
    """
    if isinstance(op, Norm) and op.place == "tensor":
        attention = next(other for other in block.operators if isinstance(other, Attention))
        return HeadNormKernel(op, setting, HEADS.index(op.name), head_widths(attention, setting.tp))
    if isinstance(op, Linear) and op.name == ROUTER:
        return RouterKernel(op, setting)
    if isinstance(op, Linear) and op.begins_stream:
        return JoiningKernel(op, setting)
    if setting.architecture.latent is not None and op.name in LATENT:
        return LATENT[op.name](op, setting)
    if isinstance(op, Loss) and setting.shape.vocabulary > 1:
        return ShareOfLossKernel(op, setting)
    if isinstance(op, Embedding) and op.place == "sequence":
        return PositionsKernel(op, setting)
    return KERNELS[type(op)](op, setting)
