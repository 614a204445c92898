"""Read the shapes of mixture-of-experts decoders; ``model/families/dense_decoders.py`` reads the shared part.

Layers for multi-token prediction (``num_nextn_predict_layers``) are left out, as in the published counts, unless the
file requests them (``model/operators/multi_token_prediction.py``).

The per-expert score correction of DeepSeek-V3, GLM-4.5 and dots.llm1 is stored with the weights but not
trained by gradients, so it is not a parameter here. Routing rules (groups, scaling) change no shape:
``model/families/moe_numerics.py`` reads them.
"""

from dataclasses import replace

from meshwright.model.architecture import Architecture, Experts, LatentAttention
from meshwright.model.families.config_fields import LARGEST_COUNT, Fields
from meshwright.model.families.dense_decoders import (
    attention_biases,
    decoder,
    read_layer_types,
    read_windows,
)
from meshwright.model.families.rotary_fields import read_rotated_layers
from meshwright.model.operators.multi_token_prediction import with_next_tokens


def mixtral(fields: Fields) -> Architecture:
    """Read Mixtral (arXiv 2401.04088): every layer routed; ``intermediate_size`` is an expert's."""
    fields.assume(num_key_value_heads=8, rms_norm_eps=1e-5)
    arch = decoder(fields, theta=1e6)
    window = fields.optional_size("sliding_window")
    moe = read_experts(
        fields, "num_local_experts", "num_experts", width="intermediate_size", layers=arch.layers
    )
    return replace(arch, intermediate=0, moe=moe, windows=(window,) * arch.layers)


def qwen3_moe(fields: Fields) -> Architecture:
    """Read Qwen3 with experts (arXiv 2505.09388): norms on each query and key head, no shared expert."""
    fields.assume(num_key_value_heads=4, sliding_window=4096)
    arch = attention_biases(fields, decoder(fields))
    window = fields.optional_size("sliding_window") if fields.flag("use_sliding_window", False) else None
    moe = read_experts(fields, "num_experts", "num_local_experts", layers=arch.layers)
    return _sparse_steps(fields, replace(arch, qk_norm=True, windows=(window,) * arch.layers), moe)


def qwen2_moe(fields: Fields) -> Architecture:
    """Read Qwen1.5-MoE and Qwen2-57B-A14B (arXiv 2407.10671): routed experts and a gated shared one."""
    fields.assume(shared_expert_intermediate_size=5632)
    bias = fields.flag("qkv_bias", True)
    if fields.flag("use_sliding_window", False):
        fields.unsupported(
            "use_sliding_window", True, "sliding Qwen2-MoE layers are not supported", "use false"
        )
    arch = replace(decoder(fields), qkv_bias=bias)
    moe = read_experts(fields, "num_experts", "num_local_experts", layers=arch.layers)
    shared = fields.size("shared_expert_intermediate_size")
    return _sparse_steps(fields, arch, replace(moe, shared_intermediate=shared, shared_gate=True))


def deepseek_v2(fields: Fields) -> Architecture:
    """Read DeepSeek-V2 (arXiv 2405.04434): latent attention, shared experts, leading dense layers."""
    fields.assume(n_shared_experts=2, first_k_dense_replace=0)
    arch = _latent(fields)
    arch = replace(arch, mlp_bias=fields.flag("mlp_bias", False))
    return _leading_dense(fields, arch, correction=False)


def deepseek_v3(fields: Fields) -> Architecture:
    """Read DeepSeek-V3 (arXiv 2412.19437) and Kimi-K2: V2 with a score correction."""
    fields.assume(n_shared_experts=1, first_k_dense_replace=3, num_experts_per_tok=8)
    return with_next_tokens(fields, _leading_dense(fields, _latent(fields), correction=True))


def glm4_moe(fields: Fields) -> Architecture:
    """Read GLM-4.5 (arXiv 2508.06471): grouped attention, biases on queries, keys and values."""
    fields.assume(num_key_value_heads=8, n_shared_experts=1, first_k_dense_replace=1, rms_norm_eps=1e-5)
    arch = replace(
        decoder(fields),
        qkv_bias=fields.flag("attention_bias", False),
        qk_norm=fields.flag("use_qk_norm", False),
    )
    return with_next_tokens(fields, _leading_dense(fields, arch, correction=True))


def glm_moe_dsa(fields: Fields) -> Architecture:
    """Read GLM-5: DeepSeek-V3 with sparse attention, counted here as attention to all positions.

    The indexer, which picks the ``index_topk`` positions that a query attends to, is left out: 0.1 % of the parameters.
    Up to that many positions the attention is the same; beyond, its time here is an upper bound.
    """
    arch = deepseek_v3(fields)
    text = f"index_topk = {fields.size('index_topk', default=2048)}: the indexer of sparse attention"
    return replace(arch, left_out=(*arch.left_out, text))


def minimax_m2(fields: Fields) -> Architecture:
    """Read MiniMax-M2: grouped attention, a norm over all heads' queries and one over the keys, corrected routing."""
    fields.assume(num_key_value_heads=8, rms_norm_eps=1e-6, num_experts_per_tok=8, num_local_experts=256)
    arch = decoder(fields, theta=5e6)
    moe = read_experts(
        fields, "num_local_experts", "num_experts", width="intermediate_size", layers=arch.layers
    )
    norms = fields.flag("use_qk_norm", True)
    further = fields.size("num_mtp_modules", default=0, least=0) if fields.flag("use_mtp", False) else 0
    text = f"num_mtp_modules = {further}: layers that predict further tokens"
    return replace(
        arch,
        left_out=(text,) if further else (),
        intermediate=0,
        qk_norm=norms,
        qk_norm_over_heads=norms,
        moe=replace(moe, router_correction=fields.flag("use_routing_bias", True)),
    )


def dots1(fields: Fields) -> Architecture:
    """Read dots.llm1 (arXiv 2506.05767): head norms on grouped attention, shared experts."""
    fields.assume(first_k_dense_replace=0, sliding_window=4096, max_window_layers=62)
    arch = attention_biases(fields, decoder(fields))
    window, first = (
        fields.optional_size("sliding_window"),
        fields.size("max_window_layers", default=62, least=0),
    )
    windows = read_windows(fields, arch.layers, window, lambda layer: layer >= first)
    return _leading_dense(fields, replace(arch, qk_norm=True, windows=windows), correction=True)


def gpt_oss(fields: Fields) -> Architecture:
    """Read gpt-oss (arXiv 2508.10925): biases everywhere, attention sinks, even layers slide."""
    fields.assume(num_key_value_heads=8, head_dim=64, sliding_window=128, rms_norm_eps=1e-5)
    arch = attention_biases(fields, decoder(fields, theta=150000.0), default=True)
    window = fields.optional_size("sliding_window")
    moe = read_experts(
        fields, "num_local_experts", "num_experts", width="intermediate_size", layers=arch.layers
    )
    return replace(
        arch,
        intermediate=0,
        attention_sinks=True,
        moe=replace(moe, expert_bias=True, router_bias=True),
        windows=read_windows(fields, arch.layers, window, lambda layer: layer % 2 == 0),
    )


def llama4(fields: Fields) -> Architecture:
    """Read the text tower of Llama 4: a token has one of many experts and a shared one, in all or some layers.

    A layer with chunked attention gets a window as wide as a chunk, which is an upper bound of its cost: only the last
    position of a chunk sees all of it. The norms of queries and keys have no weights and are not counted.
    """
    fields.assume(num_key_value_heads=8, head_dim=128, rms_norm_eps=1e-5, intermediate_size_mlp=16384)
    fields.assume(attention_chunk_size=8192)
    arch = attention_biases(fields, decoder(fields, theta=5e5))
    moe = read_experts(
        fields, "num_local_experts", "num_experts", width="intermediate_size", layers=arch.layers
    )
    routed = _interleaved(fields, arch.layers)
    dense = fields.size("intermediate_size_mlp")
    arch = replace(arch, intermediate=dense, windows=_chunks(fields, arch.layers))
    return _routed(arch, replace(moe, shared_intermediate=moe.intermediate), routed)


def _interleaved(fields: Fields, layers: int) -> tuple[bool, ...]:
    """Read the routed layers of Llama 4: ``moe_layers``, else every ``interleave_moe_layer_step``-th."""
    step = fields.size("interleave_moe_layer_step", default=1)
    rule = f"layer numbers in 0..{layers - 1}"
    listed = fields.items("moe_layers", lambda n: type(n) is int and 0 <= n < layers, rule)
    routed = set(range(step - 1, layers, step) if listed is None else listed)
    return tuple(layer in routed for layer in range(layers))


def _chunks(fields: Fields, layers: int) -> tuple[int | None, ...]:
    """Return a chunk's width for each layer with chunked attention: by ``layer_types``, else where it is rotated."""
    chunk = fields.optional_size("attention_chunk_size")
    kinds = read_layer_types(fields, layers, ("full_attention", "chunked_attention"))
    if kinds is None:
        return tuple(chunk if rotated else None for rotated in read_rotated_layers(fields, layers))
    return tuple(chunk if kind == "chunked_attention" else None for kind in kinds)


def read_experts(fields: Fields, *keys: str, width: str = "moe_intermediate_size", layers: int) -> Experts:
    """Read the routed experts, in every layer to begin with."""
    experts = fields.size(*keys, most=LARGEST_COUNT)
    active = fields.size("num_experts_per_tok", most=LARGEST_COUNT)
    if fields.sound("num_experts_per_tok", *keys) and active > experts:
        rule = f"num_experts_per_tok = {active} <= experts = {experts}"
        fields.problem("num_experts_per_tok", active, rule, f"at most {experts}")
    return Experts(
        experts=experts,
        experts_per_token=active,
        intermediate=fields.size(width),
        layers=(True,) * layers,
    )


def _sparse_steps(fields: Fields, arch: Architecture, moe: Experts) -> Architecture:
    """Apply Qwen's rule: every ``decoder_sparse_step``-th layer is routed, except ``mlp_only_layers``."""
    step = fields.size("decoder_sparse_step", default=1)
    rule = f"layer numbers in 0..{arch.layers - 1}"
    dense = fields.items("mlp_only_layers", lambda n: type(n) is int and 0 <= n < arch.layers, rule)
    left_out = set(dense or ())
    routed = tuple(layer not in left_out and (layer + 1) % step == 0 for layer in range(arch.layers))
    return _routed(arch, moe, routed)


def _leading_dense(fields: Fields, arch: Architecture, *, correction: bool) -> Architecture:
    """Apply DeepSeek's rule: ``first_k_dense_replace`` dense layers, then routed ones with shared experts."""
    frequency = fields.size("moe_layer_freq", default=1)
    if frequency != 1:
        rule = f"moe_layer_freq = {frequency} must be 1"
        fields.unsupported("moe_layer_freq", frequency, rule, "every layer after the dense ones is routed")
    dense = fields.size("first_k_dense_replace", least=0)
    if fields.sound("first_k_dense_replace", "num_hidden_layers") and dense > arch.layers:
        rule = f"first_k_dense_replace = {dense} <= num_hidden_layers = {arch.layers}"
        fields.problem("first_k_dense_replace", dense, rule, f"at most {arch.layers}")
    moe = read_experts(fields, "n_routed_experts", "num_local_experts", layers=arch.layers)
    shared = fields.size("n_shared_experts", default=0, least=0, most=LARGEST_COUNT)
    moe = replace(moe, shared_intermediate=shared * moe.intermediate, router_correction=correction)
    return _routed(arch, moe, tuple(layer >= dense for layer in range(arch.layers)))


def _routed(arch: Architecture, moe: Experts, layers: tuple[bool, ...]) -> Architecture:
    if not any(layers):
        return arch
    intermediate = 0 if all(layers) else arch.intermediate
    return replace(arch, intermediate=intermediate, moe=replace(moe, layers=layers))


def _latent(fields: Fields) -> Architecture:
    """Read a decoder with latent attention; every head has its own key and value."""
    fields.assume(q_lora_rank=1536)
    latent = LatentAttention(
        q_rank=fields.optional_size("q_lora_rank"),
        kv_rank=fields.size("kv_lora_rank"),
        qk_nope_dim=fields.size("qk_nope_head_dim"),
        qk_rope_dim=fields.size("qk_rope_head_dim"),
        v_dim=fields.size("v_head_dim"),
    )
    fields.assume(head_dim=latent.qk_nope_dim + latent.qk_rope_dim)
    arch = attention_biases(fields, decoder(fields))
    return replace(
        arch,
        latent=latent,
        kv_heads=arch.heads,
        head_dim=latent.qk_nope_dim + latent.qk_rope_dim,
        v_head_dim=latent.v_dim,
    )
