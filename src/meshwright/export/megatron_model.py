"""A decoder in the words of ``pretrain_gpt.py`` (megatron-core 0.19.2): architecture facts → options.

Megatron has one switch for all linear biases (``--disable-bias-linear``) and one more for queries, keys and
values; the router and the experts follow the first. A window of w positions is (w − 1, 0): its own position
and w − 1 to the left. Details that ``Architecture`` does not hold (rotary scaling for long contexts, routing
groups, logit caps) are not written; ``family_refusals`` names the families for which they are part of the
model.
"""

from itertools import groupby

from meshwright.errors import Problem
from meshwright.export.megatron_next_tokens import next_token_options
from meshwright.export.option_list import Option
from meshwright.export.result import Refusal
from meshwright.model.architecture import Architecture, Experts
from meshwright.model.next_tokens import without_next_tokens

GPT_OSS = "gpt_oss"
UNSAID = {
    "glm4": "a part of each head has no rotary embedding (--rotary-percent)",
    "glm4_moe": "a part of each head has no rotary embedding (--rotary-percent)",
    "granite": "multipliers on embedding, attention, residual and logits",
    "qwen2_5_vl_text": "rotary embedding in sections (--position-embedding-type mrope)",
    "qwen3_vl_moe_text": "rotary embedding in sections (--position-embedding-type mrope)",
    "qwen3_vl_text": "rotary embedding in sections (--position-embedding-type mrope)",
    "smollm3": "layers without rotary embedding (--no-rope-freq)",
}


def model_options(arch: Architecture, seq_len: int) -> list[Option]:
    """The options that make the model. For an architecture without ``model_problems``."""
    return [*_main_options(without_next_tokens(arch), seq_len), *next_token_options(arch)]


def _main_options(arch: Architecture, seq_len: int) -> list[Option]:
    return [
        ("--num-layers", str(arch.layers)),
        ("--hidden-size", str(arch.hidden)),
        ("--ffn-hidden-size", str(arch.intermediate or (arch.moe.intermediate if arch.moe else 0))),
        *_attention(arch),
        *_positions(arch, seq_len),
        ("--normalization", "RMSNorm" if arch.norm == "rmsnorm" else "LayerNorm"),
        ("--norm-epsilon", f"{arch.norm_epsilon:g}"),
        *(_activation(arch) or ()),
        *(_biases(arch) or ()),
        *([] if arch.tied_embeddings else [("--untie-embeddings-and-output-weights",)]),
        *_dropout(arch),
        *(_experts(arch.moe) if arch.moe else []),
    ]


def model_problems(arch: Architecture) -> list[Problem]:
    """What of an architecture Megatron's GPT model has no option for, by name."""
    unsayable = [
        ("model.norms_per_layer", arch.norms_per_layer != 2, arch.norms_per_layer, "2 norms per layer"),
        ("model.embedding_norm", arch.embedding_norm, True, "no norm after the embedding"),
        ("model.positions", arch.positions == "alibi", arch.positions, "rope, learned or none"),
        ("model.activation", _activation(arch) is None, _spoken(arch), "swiglu, gelu or squared relu"),
        ("model.biases", _biases(arch) is None, _bias_facts(arch), "all, none, or only q, k and v"),
        ("model.linear", arch.linear is not None, "linear attention", "attention with a softmax"),
        ("model.windows", len(_widths(arch)) > 1, sorted(_widths(arch)), "one window width"),
        ("model.rope_theta", not float(arch.rope_theta).is_integer(), arch.rope_theta, "a whole number"),
    ]
    return [
        Problem(field, value, f"pretrain_gpt.py has no option for this, only {words}", "another model")
        for field, wrong, value, words in unsayable
        if wrong
    ]


def family_refusals(arch: Architecture) -> list[Refusal]:
    """Details of a family that change no shape and that no fact describes."""
    if arch.family not in UNSAID:
        return []
    why = f"{UNSAID[arch.family]}: not in the architecture's facts; shapes and cost are unaffected"
    return [Refusal("model.family", arch.family, why)]


def _attention(arch: Architecture) -> list[Option]:
    options: list[Option] = [("--num-attention-heads", str(arch.heads))]
    if arch.latent:
        latent = arch.latent
        rank: list[Option] = [("--q-lora-rank", str(latent.q_rank))] if latent.q_rank else []
        options += [
            ("--multi-latent-attention",),
            *rank,
            ("--kv-lora-rank", str(latent.kv_rank)),
            ("--qk-head-dim", str(latent.qk_nope_dim)),
            ("--qk-pos-emb-head-dim", str(latent.qk_rope_dim)),
            ("--v-head-dim", str(latent.v_dim)),
            ("--rope-type", "rope"),
            ("--no-rope-fusion",),
        ]
    else:
        options.append(("--kv-channels", str(arch.head_dim)))
        if arch.kv_heads != arch.heads:
            options += [("--group-query-attention",), ("--num-query-groups", str(arch.kv_heads))]
    if arch.qk_norm or arch.latent:
        options.append(("--qk-layernorm",))
    if arch.attention_sinks:
        options.append(("--softmax-type", "learnable"))
    return options + _windows(arch)


def _widths(arch: Architecture) -> set[int]:
    return {window for window in arch.windows if window is not None}


def _windows(arch: Architecture) -> list[Option]:
    widths = _widths(arch)
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


def _positions(arch: Architecture, seq_len: int) -> list[Option]:
    kinds = {"rope": "rope", "learned": "learned_absolute", "none": "none"}
    options: list[Option] = [
        ("--position-embedding-type", kinds.get(arch.positions, "none")),
        ("--max-position-embeddings", str(max(arch.max_positions, seq_len))),
    ]
    if arch.positions == "rope":
        options.append(("--rotary-base", str(int(arch.rope_theta))))
    return options


def _activation(arch: Architecture) -> list[Option] | None:
    """None where there is no option. The fused GELU is the tanh approximation, the plain one is exact."""
    name = arch.activation.lower()
    if arch.family == GPT_OSS:
        return [("--quick-geglu",), ("--glu-linear-offset", "1.0"), ("--activation-func-clamp-value", "7.0")]
    if arch.gated:
        return [("--swiglu",)] if name in ("silu", "swish", "swiglu") else None
    if name in ("relu2", "squared_relu"):
        return [("--squared-relu",)]
    if name == "gelu":
        return [("--no-bias-gelu-fusion",)]
    return [] if name.startswith("gelu_") else None


def _spoken(arch: Architecture) -> str:
    return f"gated {arch.activation}" if arch.gated else arch.activation


def _bias_facts(arch: Architecture) -> dict[str, bool]:
    """Which linear layers have a bias; of the feed-forward parts only those that some layer has."""
    facts = {"qkv": arch.qkv_bias, "output": arch.output_bias}
    if arch.moe is None or not all(arch.moe.layers):
        facts["mlp"] = arch.mlp_bias
    if arch.moe is not None:
        facts |= {"expert": arch.moe.expert_bias, "router": arch.moe.router_bias}
    return facts


def _biases(arch: Architecture) -> list[Option] | None:
    """None where the switches cannot say it. Grouped experts with biases refuse the fused dropout."""
    facts = _bias_facts(arch)
    others = {bias for part, bias in facts.items() if part != "qkv"}
    if others == {False}:
        extra: list[Option] = [("--add-qkv-bias",)] if arch.qkv_bias else []
        return [("--disable-bias-linear",), *extra]
    if others == {True} and arch.qkv_bias and not (arch.moe and arch.moe.shared_intermediate):
        return [("--no-bias-dropout-fusion",)] if arch.moe else [("--add-qkv-bias",)]
    return None


def _dropout(arch: Architecture) -> list[Option]:
    rate = "0.1" if arch.dropout else "0.0"
    return [("--attention-dropout", rate), ("--hidden-dropout", rate)]


def _experts(moe: Experts) -> list[Option]:
    options: list[Option] = [
        ("--num-experts", str(moe.experts)),
        ("--moe-router-topk", str(moe.experts_per_token)),
        ("--moe-ffn-hidden-size", str(moe.intermediate)),
        ("--moe-grouped-gemm",),
        ("--moe-token-dispatcher-type", "alltoall"),
    ]
    if not all(moe.layers):
        options.append(("--moe-layer-freq", _pattern(list(moe.layers))))
    if moe.shared_intermediate:
        options.append(("--moe-shared-expert-intermediate-size", str(moe.shared_intermediate)))
    if moe.shared_gate:
        options.append(("--moe-shared-expert-gate",))
    if moe.router_correction:
        options += [("--moe-router-score-function", "sigmoid"), ("--moe-router-enable-expert-bias",)]
    return options
