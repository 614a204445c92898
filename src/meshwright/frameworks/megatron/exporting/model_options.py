"""A decoder in the words of ``pretrain_gpt.py`` (megatron-core 0.19.2): architecture facts → options.

Megatron has one switch for all linear biases (``--disable-bias-linear``) and one more for queries, keys and
values; the router and the experts follow the first. A window of w positions is (w − 1, 0): its own position
and w − 1 to the left. Details that ``Architecture`` does not hold (rotary scaling for long contexts, routing
groups, logit caps) are not written; ``family_refusals`` names the models of which they are a part.
"""

from collections.abc import Mapping
from itertools import groupby

from meshwright.frameworks.exporting.export_result import Refusal
from meshwright.frameworks.megatron import options as names
from meshwright.frameworks.option_names import Option
from meshwright.frameworks.option_table import Facts, written_options
from meshwright.model.architecture import Architecture, Experts
from meshwright.model.operators.multi_token_prediction import without_next_tokens
from meshwright.plans.rules.stack_limits.megatron_models import (
    ActivationKind,
    BiasKind,
    activation_kind,
    bias_kind,
    window_widths,
)

UNEXPRESSED_DETAILS = {
    "glm_moe_dsa": "the indexer of sparse attention",
    "granite": "multipliers on embedding, attention, residual and logits",
    "qwen2_5_vl_text": "rotary embedding in sections (--position-embedding-type mrope)",
    "qwen3_vl_moe_text": "rotary embedding in sections (--position-embedding-type mrope)",
    "qwen3_vl_text": "rotary embedding in sections (--position-embedding-type mrope)",
    "smollm3": "layers without rotary embedding (--no-rope-freq)",
}


def model_options(arch: Architecture, facts: Facts) -> list[Option]:
    """Return the options of the model, for an architecture that the limits allow."""
    main = without_next_tokens(arch)
    return [
        *written_options(names.SIZES, facts),
        *_attention(main),
        *_positions(main, facts),
        *written_options(names.NORMS, facts),
        ("--norm-epsilon", f"{main.norm_epsilon:g}"),
        *_activation(main),
        *_biases(main),
        *written_options(names.TIED, facts),
        *_dropout(main),
        *written_options(names.EXPERT_SIZES, facts),
        *(_experts(main.moe) if main.moe else []),
        *written_options(names.FURTHER_TOKENS, facts),
    ]


def family_refusals(arch: Architecture) -> list[Refusal]:
    """Details of a model that change no shape and that no fact describes."""
    detail = UNEXPRESSED_DETAILS.get(arch.family) or _unwritten_rotation(arch)
    if not detail:
        return []
    why = f"{detail}: not in the architecture's facts; shapes and cost are unaffected"
    return [Refusal("model.family", arch.family, why)]


def _unwritten_rotation(arch: Architecture) -> str:
    """Return what of a rotation no option is written for; nothing with latent attention, which has its own."""
    rotations = [] if arch.latent else [rotary for rotary in arch.numerics.rotary if rotary is not None]
    if any(rotary.dim < arch.head_dim for rotary in rotations):
        return "a part of each head has no rotary embedding (--rotary-percent)"
    if any(rotary.interleaved for rotary in rotations):
        return "heads are rotated in pairs of neighbours (--rotary-interleaved)"
    return ""


def _attention(arch: Architecture) -> list[Option]:
    options: list[Option] = []
    if arch.latent:
        latent = arch.latent
        rank: list[Option] = [("--q-lora-rank", str(latent.q_rank))] if latent.q_rank else []
        options += [
            (names.LATENT,),
            *rank,
            ("--kv-lora-rank", str(latent.kv_rank)),
            ("--qk-head-dim", str(latent.qk_nope_dim)),
            ("--qk-pos-emb-head-dim", str(latent.qk_rope_dim)),
            ("--v-head-dim", str(latent.v_dim)),
            ("--rope-type", "rope"),
            ("--no-rope-fusion",),
        ]
    if arch.qk_norm or arch.latent:
        options.append(("--qk-layernorm",))
    if arch.attention_sinks:
        options.append(("--softmax-type", "learnable"))
    return options + _windows(arch)


def _windows(arch: Architecture) -> list[Option]:
    widths = window_widths(arch)
    if not widths:
        return []
    options: list[Option] = [("--window-size", f"{max(widths) - 1},0")]
    if None in arch.windows:
        pattern = _pattern([window is not None for window in arch.windows])
        options.append(("--window-attn-skip-freq", pattern))
    return options


def _pattern(flags: list[bool]) -> str:
    """Megatron's list expression for one flag per layer: ``([0]*3+[1]*58)``."""
    runs = [(int(flag), len(list(run))) for flag, run in groupby(flags)]
    return "(" + "+".join(f"[{flag}]*{count}" for flag, count in runs) + ")"


def _positions(arch: Architecture, facts: Facts) -> list[Option]:
    kinds = {"rope": "rope", "learned": "learned_absolute", "none": "none"}
    options: list[Option] = [
        (names.POSITIONS, kinds.get(arch.positions, "none")),
        *written_options(names.LENGTH, facts),
    ]
    if arch.positions == "rope":
        options.append(("--rotary-base", str(int(arch.rope_theta))))
    return options


ACTIVATIONS: Mapping[ActivationKind, list[Option]] = {
    "gpt-oss": [("--quick-geglu",), ("--glu-linear-offset", "1.0"), ("--activation-func-clamp-value", "7.0")],
    "swiglu": [(names.SWIGLU,)],
    "squared-relu": [("--squared-relu",)],
    "gelu": [("--no-bias-gelu-fusion",)],
    "gelu-tanh": [],
}
"""The fused GELU is the tanh approximation, the plain one is exact."""
BIASES: Mapping[BiasKind, list[Option]] = {
    "none": [("--disable-bias-linear",)],
    "qkv": [("--disable-bias-linear",), ("--add-qkv-bias",)],
    "all": [("--add-qkv-bias",)],
    "all with experts": [("--no-bias-dropout-fusion",)],
}
"""Grouped experts with biases refuse the fused dropout."""


def _activation(arch: Architecture) -> list[Option]:
    kind = activation_kind(arch)
    assert kind is not None, "such a model is refused before"
    return ACTIVATIONS[kind]


def _biases(arch: Architecture) -> list[Option]:
    kind = bias_kind(arch)
    assert kind is not None, "such a model is refused before"
    return BIASES[kind]


def _dropout(arch: Architecture) -> list[Option]:
    rate = "0.1" if arch.dropout else "0.0"
    return [("--attention-dropout", rate), ("--hidden-dropout", rate)]


def _experts(moe: Experts) -> list[Option]:
    options: list[Option] = []
    if not all(moe.layers):
        options.append(("--moe-layer-freq", _pattern(list(moe.layers))))
    if moe.shared_intermediate:
        options.append(("--moe-shared-expert-intermediate-size", str(moe.shared_intermediate)))
    if moe.shared_gate:
        options.append(("--moe-shared-expert-gate",))
    if moe.router_correction:
        options += [("--moe-router-score-function", "sigmoid"), ("--moe-router-enable-expert-bias",)]
    return options
