"""The trained tensors of linear layers, norms and experts, with the dims that parallelism cuts.

Names follow the usual checkpoint names of a decoder layer, one entry for each matrix; fused checkpoints hold
the same elements. Weights are (outputs, inputs), experts' weights (experts, outputs, inputs). Column =
outputs are cut, row = inputs are cut; the bias of a row-parallel layer and all norms stay whole.
"""

from meshwright.model.operators.operator_types import Parameter, Split


def linear_tensors(name: str, outputs: int, inputs: int, split: Split, bias: bool) -> tuple[Parameter, ...]:
    """Return the weight and, if ``bias``, the bias of one matrix."""
    tp_dim = {"column": 0, "row": 1, "whole": None}[split]
    weight = Parameter(f"{name}.weight", (outputs, inputs), tp_dim=tp_dim)
    if not bias:
        return (weight,)
    return weight, Parameter(f"{name}.bias", (outputs,), tp_dim=0 if split == "column" else None)


def expert_tensors(
    name: str, experts: int, outputs: int, inputs: int, split: Split, bias: bool
) -> tuple[Parameter, ...]:
    """Return the same matrix of every expert, stacked along dim 0, which expert parallelism cuts."""
    tp_dim = {"column": 1, "row": 2, "whole": None}[split]
    weight = Parameter(f"{name}.weight", (experts, outputs, inputs), tp_dim=tp_dim, ep_dim=0)
    if not bias:
        return (weight,)
    tp_dim = 1 if split == "column" else None
    return weight, Parameter(f"{name}.bias", (experts, outputs), tp_dim=tp_dim, ep_dim=0)


def norm_tensors(name: str, width: int, kind: str) -> tuple[Parameter, ...]:
    """Return the weight of an RMSNorm, or weight and bias of a LayerNorm that is not bare."""
    if kind == "bare-layernorm":
        return ()
    weight = Parameter(f"{name}.weight", (width,))
    return (weight,) if kind == "rmsnorm" else (weight, Parameter(f"{name}.bias", (width,)))
