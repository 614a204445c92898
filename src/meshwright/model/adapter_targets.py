"""Translate target names of adapters to the matrices of a model.

Matrices are named as in the model's parameters, without ``.weight``. A target is one of the seven usual names, or a
name of the one matrix where a model has matrices of another kind; others' names stand for ours. A model's default
targets are those of the seven that it has. Embedding, head, norms, routers and gates of shared experts take none.
"""

from collections.abc import Iterable, Iterator, Mapping

from meshwright.model.graph import ModelGraph
from meshwright.model.operators.operator_types import ExpertLinear, Linear, Operator

USUAL_TARGETS = ("q", "k", "v", "o", "gate", "up", "down")
TARGETS_OF_MATRIX: Mapping[str, tuple[str, ...]] = {
    "self_attn.q_proj": ("q",),
    "self_attn.k_proj": ("k",),
    "self_attn.v_proj": ("v",),
    "self_attn.o_proj": ("o",),
    "self_attn.q_a_proj": ("q", "q_a"),
    "self_attn.q_b_proj": ("q", "q_b"),
    "self_attn.kv_a_proj_with_mqa": ("k", "v", "kv_a"),
    "self_attn.kv_b_proj": ("k", "v", "kv_b"),
    "linear_attn.q_proj": ("q",),
    "linear_attn.k_proj": ("k",),
    "linear_attn.v_proj": ("v",),
    "linear_attn.gate_proj": ("output_gate",),
    "linear_attn.o_proj": ("o",),
    "mlp.gate_proj": ("gate",),
    "mlp.up_proj": ("up",),
    "mlp.down_proj": ("down",),
    "mlp.shared_experts.gate_proj": ("gate",),
    "mlp.shared_experts.up_proj": ("up",),
    "mlp.shared_experts.down_proj": ("down",),
    "mlp.experts.gate_proj": ("gate",),
    "mlp.experts.up_proj": ("up",),
    "mlp.experts.down_proj": ("down",),
}
"""The targets that mean each matrix."""
OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    **{f"{name}_proj": (name,) for name in (*USUAL_TARGETS, "q_a", "q_b", "kv_b")},
    "kv_a_proj_with_mqa": ("kv_a",),
    "out_proj": ("o",),
    "dense": ("o",),
    "c_attn": ("q", "k", "v"),
    "qkv_proj": ("q", "k", "v"),
    "query_key_value": ("q", "k", "v"),
    "c_fc": ("up",),
    "dense_h_to_4h": ("up",),
    "gate_up_proj": ("gate", "up"),
    "c_proj": ("o", "down"),
    "dense_4h_to_h": ("down",),
    "linear_qkv": ("q", "k", "v"),
    "linear_q": ("q",),
    "linear_k": ("k",),
    "linear_v": ("v",),
    "linear_proj": ("o",),
    "linear_fc1": ("gate", "up"),
    "linear_fc1_gate": ("gate",),
    "linear_fc1_up": ("up",),
    "linear_fc2": ("down",),
    "linear_q_down_proj": ("q_a",),
    "linear_q_up_proj": ("q_b",),
    "linear_kv_down_proj": ("kv_a",),
    "linear_kv_up_proj": ("kv_b",),
}
"""Names of others (Hugging Face's modules, Megatron's), as targets of ours."""


def targets_of(op: Operator, matrix: str) -> tuple[str, ...]:
    """Return the targets that mean a matrix of an operator; none if it takes no adapter."""
    return TARGETS_OF_MATRIX.get(matrix, ()) if isinstance(op, Linear | ExpertLinear) else ()


def matrices_of(op: Operator) -> tuple[str, ...]:
    """Return the names of an operator's matrices, in order."""
    names = (p.name for p in op.parameters if p.name.endswith(".weight"))
    return tuple(name.removesuffix(".weight") for name in names)


def model_targets(model: ModelGraph) -> tuple[str, ...]:
    """Return every target that the model has, the usual ones first."""
    found = {
        target
        for block in model.blocks
        if block.kind == "layer"
        for op in block.operators
        for matrix in matrices_of(op)
        for target in targets_of(op, matrix)
    }
    known = (target for targets in TARGETS_OF_MATRIX.values() for target in targets)
    return tuple(target for target in dict.fromkeys((*USUAL_TARGETS, *known)) if target in found)


def chosen_targets(model: ModelGraph, written: Iterable[str] | None) -> tuple[str, ...]:
    """Return the targets in our names; None: all usual ones that the model has. Unknown ones are left out."""
    has = model_targets(model)
    if written is None:
        return tuple(target for target in has if target in USUAL_TARGETS)
    wanted = {ours for name in written for ours in OTHER_NAMES.get(name, (name,))}
    return tuple(target for target in has if target in wanted)


def own_names(model: ModelGraph, written: Iterable[str]) -> tuple[str, ...]:
    """Return targets in our names: the usual ones where these stand for the same matrices."""
    chosen = chosen_targets(model, written)
    own = set(_target_matrices(model, chosen))
    usual = [
        t for t in model_targets(model) if t in USUAL_TARGETS and set(_target_matrices(model, (t,))) <= own
    ]
    return tuple(usual) if set(_target_matrices(model, usual)) == own else chosen


def _target_matrices(model: ModelGraph, targets: Iterable[str]) -> Iterator[str]:
    wanted = set(targets)
    for block in model.blocks:
        for op in block.operators if block.kind == "layer" else ():
            yield from (matrix for matrix in matrices_of(op) if wanted & set(targets_of(op, matrix)))


def unknown_targets(model: ModelGraph, written: Iterable[str]) -> tuple[str, ...]:
    """Return the names of which the model has no matrix."""
    has = model_targets(model)
    return tuple(name for name in written if not any(ours in has for ours in OTHER_NAMES.get(name, (name,))))
