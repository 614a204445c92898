"""A Mamba-2 layer's part before its feed-forward as a chain of operators (arXiv 2405.21060, figure 6).

norm → B and C → enter → gate, x and Δ → filter and recurrence → gated norm → o → leave → residual. Heads are cut over
tp. B and C are the same for all heads: every token's are computed once, outside the tensor-parallel region, and enter
it by themselves; weights and biases of their filter are whole on each rank. Several groups have B and C of their own:
those are cut over tp with the heads, and projected with them.
"""

from meshwright.model.architecture import StateSpaceLayers
from meshwright.model.operators.operator_types import (
    EnterTensor,
    GatedInputNorm,
    Linear,
    Operator,
    Parameter,
    StateSpace,
)
from meshwright.model.operators.parameter_tensors import linear_tensors

FILTERS = ("mamba.x_conv", "mamba.bc_conv")
HEAD_TENSORS = ("mamba.dt_bias", "mamba.A_log", "mamba.D")
"""One number for each head: the bias of Δ, ln(−A), and D, which the delta rule has not."""


def state_space_part(layers: StateSpaceLayers, hidden: int) -> tuple[Operator, ...]:
    """Return the operators from the norm's result to the output projection's input."""
    width, both, alone = layers.width, layers.shared_width, layers.groups == 1
    sizes = {"gate_proj": width, "x_proj": width, "dt_proj": layers.heads}
    sizes |= {} if alone else {"bc_proj": both}
    sizes |= {"beta_proj": layers.heads} if layers.delta_rule else {}
    heads = Linear(
        name="heads",
        place="tensor",
        inputs=hidden,
        outputs=sum(sizes.values()),
        split="column",
        parameters=tuple(
            tensor
            for name, size in sizes.items()
            for tensor in linear_tensors(f"mamba.{name}", size, hidden, "column", False)
        ),
    )
    shared = Linear(
        name="bc",
        inputs=hidden,
        outputs=both,
        split="whole",
        reads=("input_norm",),
        saves_input=False,
        keeps_part=True,
        parameters=linear_tensors("mamba.bc_proj", both, hidden, "whole", False),
    )
    core = StateSpace(
        name="state_space",
        place="tensor",
        heads=layers.heads,
        head_dim=layers.head_dim,
        state=layers.state,
        filter_length=layers.filter_length,
        block=layers.block,
        groups=layers.groups,
        delta_rule=layers.delta_rule,
        reads=("heads", "enter_bc") if alone else ("heads",),
        parameters=(
            *_filters(layers),
            *(
                Parameter(name, (layers.heads,), tp_dim=0)
                for name in HEAD_TENSORS[: 2 if layers.delta_rule else 3]
            ),
        ),
    )
    normed = layers.head_dim if layers.delta_rule else width
    norm = GatedInputNorm(
        name="gated_norm",
        place="tensor",
        width=width,
        parts=layers.heads if layers.delta_rule else layers.groups,
        parameters=(Parameter("mamba.norm.weight", (normed,), tp_dim=None if layers.delta_rule else 0),),
    )
    return (
        *((shared, EnterTensor(name="enter_bc", width=both)) if alone else ()),
        EnterTensor(name="enter_attention", width=hidden, reads=("input_norm",)),
        heads,
        core,
        norm,
    )


def _filters(layers: StateSpaceLayers) -> tuple[Parameter, ...]:
    """Return weight and bias of the filter of x, which tp cuts, and of B and C, which it does not."""
    found: list[Parameter] = []
    cut = None if layers.groups == 1 else 0
    for name, channels, dim in zip(FILTERS, (layers.width, layers.shared_width), (0, cut), strict=True):
        found.append(Parameter(f"{name}.weight", (channels, 1, layers.filter_length), tp_dim=dim))
        if layers.filter_bias:
            found.append(Parameter(f"{name}.bias", (channels,), tp_dim=dim))
    return tuple(found)
