"""Assign operators to recomputation sets, by their names in the chain.

The names are Megatron-Core's ``--recompute-modules``. A set is recomputed as a whole from its input tensors;
``program/activation_bytes.py`` determines what need not be saved then.
"""

from dataclasses import replace

from meshwright.model.operators.operator_types import Operator

SETS: dict[str, tuple[str, ...]] = {
    "layernorm": ("input_norm", "cross_norm", "ffn_norm"),
    "core_attn": ("attention", "cross_attention"),
    "mla_up_proj": ("q_b", "kv_b"),
    "mlp": ("ffn_up", "ffn_activation", "ffn_down"),
    "shared_experts": ("shared_up", "shared_activation", "shared_down"),
    "moe": ("dispatch", "expert_up", "expert_activation", "expert_down", "combine"),
    "moe_act": ("expert_activation",),
}


def with_recompute_sets(operators: tuple[Operator, ...]) -> tuple[Operator, ...]:
    """Return the same chain, each operator with the sets that contain it."""
    return tuple(replace(op, recompute=_sets_of(op.name)) for op in operators)


def _sets_of(name: str) -> tuple[str, ...]:
    return tuple(chosen for chosen, names in SETS.items() if name in names)
