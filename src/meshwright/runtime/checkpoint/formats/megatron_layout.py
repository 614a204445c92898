"""The tensors of megatron-core 0.19's GPTModel, and where each of ours is in them.

==============================================  ================================================================
tensor of Megatron                              ours
==============================================  ================================================================
``self_attention.linear_qkv``                   q_proj, k_proj, v_proj: of each group of queries its queries, its
                                                key, its value
``self_attention.linear_qkv.layer_norm_weight``  input_layernorm
``self_attention.linear_proj``                  o_proj
``self_attention.q_layernorm``, ``k_layernorm``  q_norm, k_norm
``mlp.linear_fc1``                              gate_proj above up_proj; up_proj alone without a gate
``mlp.linear_fc1.layer_norm_weight``            post_attention_layernorm; of experts ``pre_mlp_layernorm`` with
                                                Transformer Engine
``mlp.linear_fc2``                              down_proj
``mlp.router``, ``mlp.experts.experts.…``       gate, and the experts, which have a dim of their own
``mlp.shared_experts.…``                        shared_experts, shared_expert_gate
``embedding.…``, ``output_layer``               the tables, with rows to a multiple of 128
==============================================  ================================================================

Layers are stacked along a first dim, ``decoder.layers.…``, if all are alike; else each has keys of its own,
``decoder.layers.3.…``. Source: ``sharded_state_dict`` of megatron-core 0.19.2.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import ceil

from meshwright.errors import Problem, UnsupportedError
from meshwright.model.architecture import Architecture
from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import stored_shapes
from meshwright.runtime.weights.stored_parts import Part, Place

VOCABULARY_MULTIPLE = 128
"""``--make-vocab-size-divisible-by``."""
LAYERS = "decoder.layers"
OUTER = {
    "embed.embed_tokens": "embedding.word_embeddings",
    "embed.embed_positions": "embedding.position_embeddings",
    "head.norm": "decoder.final_layernorm",
    "head.lm_head": "output_layer",
}
TABLES = ("embed.embed_tokens", "head.lm_head")
EXPERT_NORM, EXPERT_NORM_LOCAL = "pre_mlp_layernorm.", "mlp.linear_fc1.layer_norm_"
"""The norm before experts with Transformer Engine, and without it."""


@dataclass(frozen=True, slots=True)
class Inner:
    """A tensor's place in one of Megatron: its key, and of how many rows it has which."""

    key: str
    rows: int | None = None
    first: int = 0
    runs: int = 1


def megatron_places(model: ModelGraph) -> dict[str, Place]:
    """Return the place of each of our tensors. A part's name is the key, its stack the number in the leading dims.

    Raises UnsupportedError with the tensors that have none.
    """
    arch, shapes = model.architecture, stored_shapes(model)
    found = {name: _place(arch, name, shape, shapes) for name, shape in shapes.items()}
    foreign = [name for name, place in found.items() if place is None]
    if foreign:
        rule = "Megatron's GPT model has no place for it that we know"
        raise UnsupportedError(Problem("model", name, rule, "--to dcp") for name in foreign[:4])
    return {name: place for name, place in found.items() if place is not None}


def leading_dims(arch: Architecture, part: Part) -> tuple[int, ...]:
    """Return the dims of layers and experts that come before a part's own."""
    layers = (arch.layers,) if part.name.startswith(f"{LAYERS}.") and is_stacked(arch) else ()
    experts = (arch.moe.experts,) if arch.moe is not None and ".experts.experts." in part.name else ()
    return (*layers, *experts)


def is_stacked(arch: Architecture) -> bool:
    """Return whether all layers are alike, so that Megatron stacks them."""
    return arch.moe is None or all(arch.moe.layers)


def padded_vocabulary(arch: Architecture) -> int:
    """Return the rows of Megatron's tables."""
    return ceil(arch.vocab / VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


def _place(
    arch: Architecture, name: str, shape: tuple[int, ...], shapes: Mapping[str, tuple[int, ...]]
) -> Place | None:
    module, _, kind = name.rpartition(".")
    if not name.startswith("layers."):
        if module not in OUTER:
            return None
        rows = padded_vocabulary(arch) if module in TABLES else None
        return Place(shape, (Part(name=f"{OUTER[module]}.{kind}", shape=shape, rows=rows),))
    _, number, inner = name.split(".", 2)
    layer = int(number)
    routed = arch.moe is not None and arch.moe.layers[layer]
    found = _inner(arch, inner, routed=routed)
    if found is None:
        return None
    stacked = is_stacked(arch)
    key = f"{LAYERS}.{found.key}" if stacked else f"{LAYERS}.{layer}.{found.key}"
    return Place(shape, tuple(_parts(arch, found, key, layer if stacked else None, shape)))


def _parts(
    arch: Architecture, found: Inner, key: str, layer: int | None, shape: tuple[int, ...]
) -> Iterator[Part]:
    """Yield the part of a tensor, or of each expert."""
    layers = 1 if layer is None else arch.layers
    of_experts = ".experts.experts." in key
    experts = arch.moe.experts if arch.moe is not None and of_experts else 1
    inner = shape[1:] if of_experts else shape
    for expert in range(experts):
        stack = (
            None if layer is None and not of_experts else ((layer or 0) * experts + expert, layers * experts)
        )
        yield Part(name=key, shape=inner, rows=found.rows, first=found.first, runs=found.runs, stack=stack)


def _inner(arch: Architecture, inner: str, *, routed: bool) -> Inner | None:
    """Return the place of a layer's tensor; None if Megatron has none."""
    module, _, kind = inner.rpartition(".")
    if module in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
        return _of_attention(arch, module[-6], kind)
    norm = EXPERT_NORM if routed else EXPERT_NORM_LOCAL
    same = {
        "self_attn.o_proj": f"self_attention.linear_proj.{kind}",
        "self_attn.q_norm": f"self_attention.q_layernorm.{kind}",
        "self_attn.k_norm": f"self_attention.k_layernorm.{kind}",
        "input_layernorm": f"self_attention.linear_qkv.layer_norm_{kind}",
        "post_attention_layernorm": f"{norm}{kind}",
        "mlp.gate": {"weight": "mlp.router.weight", "e_score_correction_bias": "mlp.router.expert_bias"}.get(
            kind
        ),
        "mlp.shared_expert_gate": "mlp.shared_experts.gate_weight",
    }
    if module in same:
        key = same[module]
        return None if key is None else Inner(key)
    return _of_feed_forward(arch, module, kind)


def _of_attention(arch: Architecture, letter: str, kind: str) -> Inner:
    """Return the rows of queries, keys or values of every group."""
    queries = arch.heads // arch.kv_heads * arch.head_dim
    first = {"q": 0, "k": queries, "v": queries + arch.head_dim}[letter]
    rows = arch.kv_heads * (queries + 2 * arch.head_dim)
    return Inner(f"self_attention.linear_qkv.{kind}", rows, first, arch.kv_heads)


def _of_feed_forward(arch: Architecture, module: str, kind: str) -> Inner | None:
    """Return the rows of a matrix of a feed-forward part, dense, routed or shared by all tokens."""
    prefix, _, matrix = module.rpartition(".")
    widths = {"mlp": arch.intermediate}
    if arch.moe is not None:
        widths |= {"mlp.experts": arch.moe.intermediate, "mlp.shared_experts": arch.moe.shared_intermediate}
    if prefix not in widths or (prefix == "mlp.experts" and kind != "weight"):
        return None
    place = f"{prefix}.experts" if prefix == "mlp.experts" else prefix
    if matrix == "down_proj":
        return Inner(f"{place}.linear_fc2.{kind}")
    if matrix == "up_proj" and not arch.gated:
        return Inner(f"{place}.linear_fc1.{kind}")
    if matrix not in ("gate_proj", "up_proj"):
        return None
    width = widths[prefix]
    return Inner(f"{place}.linear_fc1.{kind}", 2 * width, width if matrix == "up_proj" else 0)
