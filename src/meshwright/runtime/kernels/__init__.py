"""A kernel for each kind of operator: ``KERNELS`` is the table, ``kernel_of`` creates one for a layer on a rank.

A kind that is not in the table is refused by name before a run (``plans/rules/stack_limits/meshwright.py``).
"""

from collections.abc import Callable, Mapping
from typing import Any

from meshwright.model.graph import Block
from meshwright.model.operators.operator_types import (
    Activation,
    Attention,
    Combine,
    Dispatch,
    Embedding,
    EnterTensor,
    ExpertActivation,
    ExpertLinear,
    ExpertLowRank,
    GatedInputNorm,
    GatedNorm,
    JoinImages,
    LeaveTensor,
    Linear,
    LinearAttention,
    Loss,
    LowRank,
    MergePatches,
    Norm,
    Operator,
    PatchEmbedding,
    PlaceImages,
    PositionBias,
    Residual,
    SharedValue,
    StateSpace,
)
from meshwright.runtime.kernels.activation import ActivationKernel
from meshwright.runtime.kernels.attention.latent_attention import (
    NORMS,
    PARTS,
    CompressedNormKernel,
    LatentAttentionKernel,
    LatentUpProjectionKernel,
)
from meshwright.runtime.kernels.attention.rotated_heads import head_widths
from meshwright.runtime.kernels.attention.softmax_attention import AttentionKernel
from meshwright.runtime.kernels.boundary_and_residual import BoundaryKernel, ResidualKernel
from meshwright.runtime.kernels.encoder.image_attention import ImageAttentionKernel
from meshwright.runtime.kernels.encoder.image_rows import (
    JoinKernel,
    MergeKernel,
    PatchEmbeddingKernel,
    PlaceKernel,
    SharedValueKernel,
)
from meshwright.runtime.kernels.encoder.position_bias import PositionBiasKernel
from meshwright.runtime.kernels.encoder.text_attention import TextAttentionKernel
from meshwright.runtime.kernels.kernel import Kernel, Setting
from meshwright.runtime.kernels.linear import JoiningKernel, LinearKernel
from meshwright.runtime.kernels.linear_attention.linear_attention import (
    GatedNormKernel,
    LinearAttentionKernel,
)
from meshwright.runtime.kernels.low_rank import ExpertLowRankKernel, LowRankKernel, ReplicaPairKernel
from meshwright.runtime.kernels.moe.dispatch_combine import CombineKernel, DispatchKernel
from meshwright.runtime.kernels.moe.expert_linear import ExpertLinearKernel
from meshwright.runtime.kernels.moe.router import ROUTER, RouterKernel
from meshwright.runtime.kernels.norm import HeadNormKernel, NormKernel
from meshwright.runtime.kernels.state_space.gated_input_norm import GatedInputNormKernel
from meshwright.runtime.kernels.state_space.state_space import StateSpaceKernel
from meshwright.runtime.kernels.vocabulary.cross_entropy import LossKernel, ShareOfLossKernel
from meshwright.runtime.kernels.vocabulary.learned_positions import PositionsKernel
from meshwright.runtime.kernels.vocabulary.token_embedding import EmbeddingKernel

KERNELS: Mapping[type[Operator], Callable[[Any, Setting], Kernel]] = {
    Activation: ActivationKernel,
    Attention: AttentionKernel,
    Combine: CombineKernel,
    Dispatch: DispatchKernel,
    Embedding: EmbeddingKernel,
    EnterTensor: BoundaryKernel,
    ExpertActivation: ActivationKernel,
    ExpertLinear: ExpertLinearKernel,
    ExpertLowRank: ExpertLowRankKernel,
    GatedInputNorm: GatedInputNormKernel,
    GatedNorm: GatedNormKernel,
    LeaveTensor: BoundaryKernel,
    Linear: LinearKernel,
    LinearAttention: LinearAttentionKernel,
    JoinImages: JoinKernel,
    Loss: LossKernel,
    LowRank: LowRankKernel,
    MergePatches: MergeKernel,
    Norm: NormKernel,
    PatchEmbedding: PatchEmbeddingKernel,
    PlaceImages: PlaceKernel,
    PositionBias: PositionBiasKernel,
    Residual: ResidualKernel,
    SharedValue: SharedValueKernel,
    StateSpace: StateSpaceKernel,
}
"""The kernel of each kind of operator that the runtime executes."""
HEADS = ("q_norm", "k_norm")
LATENT: Mapping[str, Callable[[Any, Setting], Kernel]] = {
    **dict.fromkeys(NORMS, CompressedNormKernel),
    **dict.fromkeys(PARTS, LatentUpProjectionKernel),
    "attention": LatentAttentionKernel,
}
"""The kernels of latent attention's operators, by name."""


def kernel_of(op: Operator, block: Block, setting: Setting) -> Kernel:
    """Return the kernel of an operator.

    Norms of heads get their part of the block's projection. With a vocabulary spread over pipeline ranks, the loss
    kernel computes the rank's part, and learned positions have a kernel of their own.
    """
    if isinstance(op, Attention) and not op.plain:
        return ImageAttentionKernel(op, setting) if op.merge else TextAttentionKernel(op, setting)
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
    if isinstance(op, LowRank) and op.of_each_replica:
        return ReplicaPairKernel(op, setting)
    if isinstance(op, Embedding) and op.place == "sequence":
        return PositionsKernel(op, setting)
    return KERNELS[type(op)](op, setting)
