"""The model in Megatron's options, as columns of a table of runs.

A table of 2021 has no option for the output layer (it is the embedding), none for the activation (a GELU) and none
for query groups. Transformer Engine chooses the attention kernel itself unless a backend is named.
"""

from collections.abc import Iterator

from meshwright.frameworks.importing.imported_file import Fact
from meshwright.ingestion.logs.events import Settings, first_text, is_on, whole_number

Found = Iterator[tuple[str, Fact]]
"""Columns and their facts."""

EXPERTS = ("num_experts", "num_moe_experts")
GROUPS = ("num_query_groups", "num_key_value_heads")
SOFTMAX = ("masked_softmax_fusion", "scaled_masked_softmax_fusion")
UNTIED, TIED = "untie_embeddings_and_output_weights", "share_embeddings_and_output_weights"
MODEL_OPTIONS = (
    *("ffn_hidden_size", "moe_ffn_hidden_size", "swiglu", "squared_relu", "quick_geglu", "glu_activation"),
    *("gated_linear_unit", "kv_channels", "group_query_attention", "multi_latent_attention", UNTIED, TIED),
    *("moe_router_topk", "expert_tensor_parallel_size", *EXPERTS, *GROUPS, *SOFTMAX),
    *("use_flash_attn", "attention_backend", "transformer_impl", "DDP_impl"),
)


def words(settings: Settings, name: str) -> str:
    """Return an option as the table prints it."""
    return f"{name} {settings.get(name, 'not in the table')[:80]}"


def feed_forward(settings: Settings) -> Found:
    """Yield width and kind of the feed-forward part."""
    gate = first_text(settings, "glu_activation") or ""
    if is_on(settings, "swiglu") or is_on(settings, "gated_linear_unit") or "swiglu" in gate:
        yield "ffn", Fact("swiglu", "a gated linear unit")
    elif is_on(settings, "quick_geglu") or "geglu" in gate:
        yield "ffn", Fact("geglu", "a gated GELU")
    elif is_on(settings, "squared_relu"):
        yield "ffn", Fact("relu2", "squared_relu True")
    elif {"swiglu", "gated_linear_unit", "DDP_impl"} & set(settings):
        yield "ffn", Fact("gelu", "no other activation in the table")
    routed = ("moe_ffn_hidden_size",) if whole_number(settings, *EXPERTS) else ()
    if width := whole_number(settings, *routed, "ffn_hidden_size"):
        yield "ffn_hidden", Fact(str(width), f"a feed-forward width of {width}")


def embeddings(settings: Settings) -> Found:
    """Yield whether the output layer is the embedding table."""
    if TIED in settings:
        yield "tied_embeddings", Fact(str(is_on(settings, TIED)).lower(), words(settings, TIED))
    elif UNTIED in settings or "DDP_impl" in settings:
        yield "tied_embeddings", Fact(str(not is_on(settings, UNTIED)).lower(), words(settings, UNTIED))


def experts(settings: Settings) -> Found:
    """Yield the routed experts; without an expert-tensor degree they are cut over tp."""
    count = whole_number(settings, *EXPERTS)
    if not count or count == 1:
        return
    yield "experts", Fact(str(count), f"{count} experts")
    if chosen := whole_number(settings, "moe_router_topk"):
        yield "experts_per_token", Fact(str(chosen), f"moe_router_topk {chosen}")
    if cut := whole_number(settings, "expert_tensor_parallel_size", "tensor_model_parallel_size"):
        yield "etp", Fact(str(cut), "expert_tensor_parallel_size, or as tp where it is left out")


def heads(settings: Settings) -> Found:
    """Yield the key-value heads, and the width of a head."""
    if is_on(settings, "multi_latent_attention"):
        yield "head_dim", Fact("mla", "multi_latent_attention True")
        return
    count, groups = whole_number(settings, "num_attention_heads"), whole_number(settings, *GROUPS)
    grouped = settings.get("group_query_attention", "True").lower() == "true"
    if count:
        origin = "num_query_groups" if grouped and groups else "one per head"
        yield "kv_heads", Fact(str(groups if grouped and groups else count), origin)
    if width := whole_number(settings, "kv_channels"):
        yield "head_dim", Fact(str(width), f"kv_channels {width}")


def kernel(settings: Settings) -> Found:
    """Yield the attention kernel, if the table determines it."""
    backend = (first_text(settings, "attention_backend") or "").rpartition(".")[2]
    has_softmax = any(name in settings for name in SOFTMAX)
    local = not backend and has_softmax and settings.get("transformer_impl", "local") == "local"
    if is_on(settings, "use_flash_attn") or backend in ("flash", "fused"):
        yield (
            "attention",
            Fact("flash", words(settings, "attention_backend" if backend else "use_flash_attn")),
        )
    elif backend in ("unfused", "local") or local:
        fused = any(is_on(settings, name) for name in SOFTMAX)
        yield "attention", Fact("fused-softmax" if fused else "eager", "no flash attention")


MODEL_PARTS = (feed_forward, embeddings, experts, heads, kernel)
