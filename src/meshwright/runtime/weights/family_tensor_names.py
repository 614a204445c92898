"""Names of all tensors in a family's checkpoint, as ``save_pretrained`` of transformers 5.23 writes it.

Our names are those of ``model/named_tensors.py``. Most families use them, with one matrix for each; the others rename
modules, stack several of ours in one tensor, or store matrices as (inputs, outputs).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from meshwright.errors import Problem, UnsupportedError, nearest
from meshwright.model.architecture import Architecture
from meshwright.model.encoder import VisionEncoder
from meshwright.model.graph import ModelGraph
from meshwright.model.named_tensors import TOKEN_TABLE, base_shapes
from meshwright.model.operators.mamba import FILTERS
from meshwright.runtime.weights.expert_tensor_names import EXPERTS, GPT_OSS, MIXTRAL, ONE_BY_ONE, ExpertNames
from meshwright.runtime.weights.stored_parts import Part, Place

QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
LINEAR_QKV = ("linear_attn.q_proj", "linear_attn.k_proj", "linear_attn.v_proj")
GATE_UP = ("mlp.gate_proj", "mlp.up_proj")
HEAD = "lm_head"
VISION = "visual"
PATCHES = "embed.patch_embed"
ENCODER_LAYERS = "encoder."


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The names of one family. A module is a tensor's name without ``.weight`` or ``.bias``.

    * ``prefixes`` may precede every name but the head's and the vision tower's: all are read, the first is written
      unless another is requested (for a text tower, whose whole model has its own).
    * ``outer`` maps the modules outside layers, ``layers`` is the list's name, ``inner`` renames modules of a layer;
      other modules keep their names. ``ungated`` replaces names of ``inner`` where the feed-forward has no gate.
    * ``fused``: a stored module, and ours that are stacked in it along dim 0; ``by_heads``: the stack holds the first
      head of each, then the second heads and so on (BLOOM, linear attention of MiniMax).
    * ``transposed``: stored modules whose weight is (inputs, outputs).
    * ``experts`` names the matrices of experts.
    * ``encoder`` has the names of an encoder's layers.
    * ``ignored`` ends names of stored tensors that repeat another or that no model uses.
    """

    prefixes: tuple[str, ...] = ("model.", "language_model.model.", "model.language_model.", "")
    outer: Mapping[str, str] = field(
        default_factory=lambda: {"embed.embed_tokens": "embed_tokens", "head.norm": "norm"}
    )
    layers: str = "layers"
    inner: Mapping[str, str] = field(default_factory=dict)
    ungated: Mapping[str, str] = field(default_factory=dict)
    fused: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by_heads: bool = False
    transposed: tuple[str, ...] = ()
    experts: ExpertNames = ONE_BY_ONE
    encoder: "Checkpoint | None" = None
    ignored: tuple[str, ...] = ()


def _t5_layers(stack: str, cross: bool) -> Checkpoint:
    """Return the names of T5's layers: a list of two sublayers, or of three with cross attention."""
    last = 2 if cross else 1
    feedforward = f"layer.{last}.DenseReluDense"
    attentions = {"self_attn": "layer.0.SelfAttention", "cross_attn": "layer.1.EncDecAttention"}
    return Checkpoint(
        layers=f"{stack}.block",
        inner={
            **{f"{ours}.{x}_proj": f"{name}.{x}" for ours, name in attentions.items() for x in "qkvo"},
            "input_layernorm": "layer.0.layer_norm",
            "cross_attention_layernorm": "layer.1.layer_norm",
            "post_attention_layernorm": f"layer.{last}.layer_norm",
            "mlp.gate_proj": f"{feedforward}.wi_0",
            "mlp.up_proj": f"{feedforward}.wi_1",
            "mlp.down_proj": f"{feedforward}.wo",
        },
        ungated={"mlp.up_proj": f"{feedforward}.wi"},
    )


PLAIN = Checkpoint()
CHECKPOINTS: dict[str, Checkpoint] = {
    "bloom": Checkpoint(
        prefixes=("transformer.", ""),
        outer={
            "embed.embed_tokens": "word_embeddings",
            "embed.embedding_layernorm": "word_embeddings_layernorm",
            "head.norm": "ln_f",
        },
        layers="h",
        inner={
            "self_attn.o_proj": "self_attention.dense",
            "mlp.up_proj": "mlp.dense_h_to_4h",
            "mlp.down_proj": "mlp.dense_4h_to_h",
        },
        fused={"self_attention.query_key_value": QKV},
        by_heads=True,
    ),
    "deepseek_v2": PLAIN,
    "deepseek_v3": PLAIN,
    "dots1": PLAIN,
    "ernie4_5": PLAIN,
    "gemma": PLAIN,
    "gemma2": PLAIN,
    "gemma3_text": PLAIN,
    "glm": Checkpoint(fused={"mlp.gate_up_proj": GATE_UP}),
    "glm4": Checkpoint(
        inner={
            "post_attention_layernorm": "post_self_attn_layernorm",
            "pre_feedforward_layernorm": "post_attention_layernorm",
            "post_feedforward_layernorm": "post_mlp_layernorm",
        },
        fused={"mlp.gate_up_proj": GATE_UP},
    ),
    "glm4_moe": PLAIN,
    "gpt2": Checkpoint(
        prefixes=("transformer.", ""),
        outer={"embed.embed_tokens": "wte", "embed.embed_positions": "wpe", "head.norm": "ln_f"},
        layers="h",
        inner={
            "input_layernorm": "ln_1",
            "self_attn.o_proj": "attn.c_proj",
            "post_attention_layernorm": "ln_2",
            "mlp.up_proj": "mlp.c_fc",
            "mlp.down_proj": "mlp.c_proj",
        },
        fused={"attn.c_attn": QKV},
        transposed=("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"),
    ),
    "gpt_oss": Checkpoint(inner={"mlp.gate": "mlp.router"}, experts=GPT_OSS),
    "granite": PLAIN,
    "granitemoehybrid": Checkpoint(
        inner={"mlp.down_proj": "shared_mlp.output_linear"},
        fused={
            "shared_mlp.input_linear": GATE_UP,
            "mamba.in_proj": ("mamba.gate_proj", "mamba.x_proj", "mamba.bc_proj", "mamba.dt_proj"),
            "mamba.conv1d": FILTERS,
        },
    ),
    "kimi_k2": PLAIN,
    "llama": PLAIN,
    "minimax": Checkpoint(
        inner={
            "mlp.gate": "block_sparse_moe.gate",
            "linear_attn.gate_proj": "self_attn.output_gate",
            "linear_attn.norm": "self_attn.norm",
            "linear_attn.o_proj": "self_attn.out_proj",
        },
        fused={"self_attn.qkv_proj": LINEAR_QKV},
        by_heads=True,
        experts=MIXTRAL,
    ),
    "ministral3": PLAIN,
    "mistral": PLAIN,
    "mixtral": Checkpoint(inner={"mlp.gate": "block_sparse_moe.gate"}, experts=MIXTRAL),
    "olmo": PLAIN,
    "phi3": Checkpoint(fused={"self_attn.qkv_proj": QKV, "mlp.gate_up_proj": GATE_UP}),
    "qwen2": PLAIN,
    "qwen2_5_vl": Checkpoint(
        outer={
            **PLAIN.outer,
            PATCHES: f"{VISION}.patch_embed.proj",
            "encoder_end.norm": f"{VISION}.merger.ln_q",
            "encoder_end.up_proj": f"{VISION}.merger.mlp.0",
            "encoder_end.down_proj": f"{VISION}.merger.mlp.2",
        },
        encoder=Checkpoint(
            layers=f"{VISION}.blocks",
            inner={
                "input_layernorm": "norm1",
                "self_attn.o_proj": "attn.proj",
                "post_attention_layernorm": "norm2",
            },
            fused={"attn.qkv": QKV},
        ),
    ),
    "qwen2_5_vl_text": PLAIN,
    "qwen2_moe": Checkpoint(
        inner={
            f"mlp.shared_experts.{name}": f"mlp.shared_expert.{name}"
            for name in ("gate_proj", "up_proj", "down_proj")
        }
    ),
    "qwen3": PLAIN,
    "qwen3_moe": PLAIN,
    "qwen3_vl_text": Checkpoint(prefixes=("model.language_model.", "model.", "")),
    "smollm3": PLAIN,
    "stablelm": PLAIN,
    "starcoder2": Checkpoint(inner={"mlp.up_proj": "mlp.c_fc", "mlp.down_proj": "mlp.c_proj"}),
    "t5": replace(
        _t5_layers("decoder", cross=True),
        prefixes=("",),
        outer={
            "embed.embed_tokens": "shared",
            "embed.encoder_attention_bias": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
            "embed.attention_bias": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias",
            "encoder_end.norm": "encoder.final_layer_norm",
            "head.norm": "decoder.final_layer_norm",
        },
        encoder=_t5_layers("encoder", cross=False),
        ignored=("coder.embed_tokens.weight", "EncDecAttention.relative_attention_bias.weight"),
    ),
}


def checkpoint_of(family: str) -> Checkpoint:
    """Return the names of a family. Raises UnsupportedError if they are not known."""
    if family not in CHECKPOINTS:
        rule = "the names of this family's checkpoints are not known"
        raise UnsupportedError(Problem("model_type", family, rule, nearest(family, CHECKPOINTS)))
    return CHECKPOINTS[family]


def prefixed(prefix: str, name: str) -> str:
    """Return a stored name with its prefix; head and vision tower are outside the module that the prefix names."""
    if name.startswith(f"{VISION}."):
        return f"model.{name}" if prefix == "model.language_model." else name
    if not name.startswith(f"{HEAD}."):
        return prefix + name
    return f"language_model.{name}" if prefix == "language_model.model." else name


def stored_copies(model: ModelGraph) -> dict[str, str]:
    """Return the tensors that a checkpoint repeats for each multi-token-prediction layer: stored name → ours."""
    arch = model.architecture
    head = TOKEN_TABLE if arch.tied_embeddings else f"head.{HEAD}.weight"
    return {
        f"layers.{layer}.{module}.weight": ours
        for layer in range(arch.main_layers, arch.layers)
        for module, ours in (("embed_tokens", TOKEN_TABLE), ("shared_head.head", head))
    }


def stored_places(model: ModelGraph) -> dict[str, Place]:
    """Return the stored place of each tensor but adapters, by our name; stored names are without prefix."""
    checkpoint, shapes = checkpoint_of(model.architecture.family), base_shapes(model)
    return {
        name: Place(shape, _parts(checkpoint, model.architecture, name, shapes))
        for name, shape in shapes.items()
    }


def _parts(
    checkpoint: Checkpoint, arch: Architecture, name: str, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Part, ...]:
    module, _, kind = name.rpartition(".")
    unit, inner = _in_layer(module)
    if not unit:
        stored = f"{checkpoint.outer.get(module, HEAD)}.{kind}"
        return (
            Part(name=stored, shape=shapes[name], columns=_patch_shape(arch) if module == PATCHES else ()),
        )
    if unit.startswith(ENCODER_LAYERS):
        assert checkpoint.encoder is not None
        checkpoint = checkpoint.encoder
    layer = f"{checkpoint.layers}.{unit.partition('.')[2]}"
    if inner.startswith(EXPERTS):
        return checkpoint.experts.parts(layer, inner, kind, shapes[name])
    stored, members = next(
        ((fused, members) for fused, members in checkpoint.fused.items() if inner in members),
        (_renamed(checkpoint, arch, inner), (inner,)),
    )
    sizes = [shapes[f"{unit}.{member}.{kind}"][0] for member in members]
    runs = arch.heads if checkpoint.by_heads and len(members) > 1 else 1
    part = Part(
        name=f"{layer}.{stored}.{kind}",
        shape=shapes[name],
        rows=sum(sizes),
        first=sum(sizes[: members.index(inner)]) // runs,
        runs=runs,
        transposed=kind == "weight" and stored in checkpoint.transposed,
    )
    return (part,)


def _renamed(checkpoint: Checkpoint, arch: Architecture, inner: str) -> str:
    names = checkpoint.inner if arch.gated else {**checkpoint.inner, **checkpoint.ungated}
    return names.get(inner, inner)


def _patch_shape(arch: Architecture) -> tuple[int, ...]:
    return arch.encoder.patch_shape if isinstance(arch.encoder, VisionEncoder) else ()


def _in_layer(module: str) -> tuple[str, str]:
    """Split off ``layers.3`` or ``encoder.3``; the unit is empty for embedding, head and an encoder's end."""
    if not module.startswith(("layers.", ENCODER_LAYERS)):
        return "", module
    kind, number, inner = module.split(".", 2)
    return f"{kind}.{number}", inner
