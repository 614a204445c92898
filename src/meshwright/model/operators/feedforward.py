"""The feed-forward part of a decoder layer as a chain of operators.

Dense: norm → enter → gate and up → activation → down → leave → [norm] → residual.
Parallel to the mixer (GPT-J): the same chain without its norm and its edge, from those of the mixer; each part is added
to the stream by itself.
Experts: norm → [shared experts, a dense chain] → router → dispatch → grouped gate and up → activation →
grouped down → combine → [norm] → residual. The router's softmax, top-k and auxiliary loss are not counted as
FLOPs (< 0.1 % of the layer).
"""

from meshwright.model.architecture import Architecture, Experts
from meshwright.model.operators.attention import ENTERED
from meshwright.model.operators.operator_types import (
    Activation,
    Combine,
    Dispatch,
    EnterTensor,
    ExpertActivation,
    ExpertLinear,
    LeaveTensor,
    Linear,
    Norm,
    Operator,
    Residual,
)
from meshwright.model.operators.parameter_tensors import expert_tensors, linear_tensors, norm_tensors

RESIDUAL = "ffn_residual"


def feedforward_part(arch: Architecture, moe: Experts | None) -> tuple[Operator, ...]:
    """Return the operators of one layer's feed-forward; ``moe`` is None in a dense layer."""
    if arch.parallel_parts:
        assert moe is None, "no family has experts in parallel to the mixer"
        residual = Residual(name=RESIDUAL, width=arch.hidden, dropout=arch.dropout)
        return *_dense(arch, "ffn", "mlp", arch.intermediate, entered=ENTERED), residual
    before, after = "post_attention_layernorm", None
    if arch.norms_per_layer == 4:
        before, after = "pre_feedforward_layernorm", "post_feedforward_layernorm"
    body = _dense(arch, "ffn", "mlp", arch.intermediate) if moe is None else _routed(arch, moe)
    return (
        _norm(arch, "ffn_norm", before),
        *body,
        *([_norm(arch, "post_ffn_norm", after)] if after else []),
        Residual(
            name=RESIDUAL,
            width=arch.hidden,
            dropout=arch.dropout,
            stream="ffn_norm" if arch.residual_after_norm else None,
        ),
    )


def _norm(arch: Architecture, name: str, tensor: str) -> Norm:
    return Norm(name=name, width=arch.hidden, parameters=norm_tensors(tensor, arch.hidden, arch.norm))


def _dense(
    arch: Architecture, name: str, tensor: str, width: int, *, entered: str | None = None
) -> tuple[Operator, ...]:
    """Return enter → gate and up → activation → down → leave; operator names begin with ``name``.

    ``entered``: the edge of another part, whose result that part keeps for both.
    """
    ups = ("gate_proj", "up_proj") if arch.gated else ("up_proj",)
    up = Linear(
        name=f"{name}_up",
        place="tensor",
        inputs=arch.hidden,
        outputs=len(ups) * width,
        split="column",
        reads=(entered,) if entered else (),
        saves_input=not entered,
        parameters=tuple(
            part
            for up in ups
            for part in linear_tensors(f"{tensor}.{up}", width, arch.hidden, "column", arch.mlp_bias)
        ),
    )
    down = Linear(
        name=f"{name}_down",
        place="tensor",
        inputs=width,
        outputs=arch.hidden,
        split="row",
        parameters=linear_tensors(f"{tensor}.down_proj", arch.hidden, width, "row", arch.mlp_bias),
    )
    return (
        *(() if entered else (EnterTensor(name=f"enter_{name}", width=arch.hidden),)),
        up,
        Activation(name=f"{name}_activation", place="tensor", width=width, gated=arch.gated),
        down,
        LeaveTensor(name=f"leave_{name}", width=arch.hidden),
    )


def _routed(arch: Architecture, moe: Experts) -> tuple[Operator, ...]:
    shared: tuple[Operator, ...] = ()
    if moe.shared_intermediate:
        shared = _dense(arch, "shared", "mlp.shared_experts", moe.shared_intermediate)
    if moe.shared_gate:
        shared = (*shared, _small(arch, "shared_gate", "mlp.shared_expert_gate", 1, False, saves_input=False))
    router = _small(
        arch, "router", "mlp.gate", moe.experts, moe.router_bias, saves_input=not moe.shared_intermediate
    )
    shared_results = tuple(op.name for op in shared if op.name in ("leave_shared", "shared_gate"))
    return (*shared, router, *_experts(arch, moe, shared_results))


def _small(
    arch: Architecture, name: str, tensor: str, outputs: int, bias: bool, *, saves_input: bool
) -> Linear:
    """Return a projection that every rank computes whole, on its part of the sequence."""
    return Linear(
        name=name,
        inputs=arch.hidden,
        outputs=outputs,
        split="whole",
        reads=("ffn_norm",),
        saves_input=saves_input,
        parameters=linear_tensors(tensor, outputs, arch.hidden, "whole", bias),
    )


def _experts(arch: Architecture, moe: Experts, shared_results: tuple[str, ...]) -> tuple[Operator, ...]:
    """Return dispatch → up → activation → down → combine.

    The combine also adds the results of ``shared_results``.
    """
    count, active, width, bias = moe.experts, moe.experts_per_token, moe.intermediate, moe.expert_bias
    groups, chosen = _groups(arch)
    ups = ("gate_proj", "up_proj") if arch.gated else ("up_proj",)
    up = ExpertLinear(
        name="expert_up",
        place="expert",
        inputs=arch.hidden,
        outputs=len(ups) * width,
        split="column",
        experts=count,
        experts_per_token=active,
        parameters=tuple(
            part
            for up in ups
            for part in expert_tensors(f"mlp.experts.{up}", count, width, arch.hidden, "column", bias)
        ),
    )
    down = ExpertLinear(
        name="expert_down",
        place="expert",
        inputs=width,
        outputs=arch.hidden,
        split="row",
        experts=count,
        experts_per_token=active,
        parameters=expert_tensors("mlp.experts.down_proj", count, arch.hidden, width, "row", bias),
    )
    activation = ExpertActivation(
        name="expert_activation", place="expert", width=width, gated=arch.gated, experts_per_token=active
    )
    return (
        Dispatch(
            name="dispatch",
            place="expert",
            width=arch.hidden,
            experts=count,
            experts_per_token=active,
            groups=groups,
            chosen_groups=chosen,
            reads=("ffn_norm", "router"),
        ),
        up,
        activation,
        down,
        Combine(
            name="combine",
            place="expert",
            width=arch.hidden,
            experts=count,
            experts_per_token=active,
            groups=groups,
            chosen_groups=chosen,
            reads=("expert_down", *shared_results),
        ),
    )


def _groups(arch: Architecture) -> tuple[int, int]:
    """Return the number of expert groups, and how many of them hold a token's experts."""
    routing = arch.numerics.routing if arch.numerics else None
    limited = routing.groups if routing else None
    return (limited.count, limited.chosen) if limited else (1, 1)
