"""Fields of a Megatron-Bridge configuration that a plan has a word for.

A field that neither the file nor its recipe sets is no fact. Bridge counts virtual stages per pipeline rank; it cuts
experts over one rank where ep > 1 and nobody says otherwise (``models/transformer_config.py``), else as many as tp.
The precision is a name of ``training/mixed_precision.py`` or its fields.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from meshwright.errors import nearest
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import NEXT_LAYERS, Fact
from meshwright.frameworks.megatron.exporting.plan_options import OPTIMIZERS, ORDERS, STRATEGIES
from meshwright.frameworks.megatron.importing.expert_capacity import capacity_facts
from meshwright.frameworks.megatron.importing.multi_token_prediction import USUAL_WEIGHT, weight_fact
from meshwright.frameworks.megatron.importing.options_to_plan import (
    CONTEXT_OF,
    RECOMPUTES,
    context_in_megatron_words,
)
from meshwright.frameworks.megatron_bridge.importing.pipeline_stages import stage_facts

Facts = dict[str, Fact]
NUMBERS: Mapping[str, str] = {
    "model.tensor_model_parallel_size": "layout.tp",
    "model.pipeline_model_parallel_size": "layout.pp",
    "model.context_parallel_size": "layout.cp",
    "model.expert_model_parallel_size": "layout.ep",
    "model.expert_tensor_parallel_size": "layout.etp",
    "model.virtual_pipeline_model_parallel_size": "pipeline.virtual_stages",
    "train.micro_batch_size": "pipeline.micro_batch",
    "train.global_batch_size": "workload.global_batch",
    "model.seq_length": "workload.seq_len",
    "dataset.sequence_length": "workload.seq_len",
    "dataset.seq_length": "workload.seq_len",
    "model.num_layers": "model.layers",
    "model.hidden_size": "model.hidden",
    "model.num_attention_heads": "model.heads",
    "model.num_query_groups": "model.kv_heads",
    "model.kv_channels": "model.head_dim",
    "model.num_moe_experts": "model.experts",
    "model.moe_router_topk": "model.experts_per_token",
    "model.moe_ffn_hidden_size": "model.expert_intermediate",
}
"""Fields that are a number of a plan, of its workload or of its model; of several for one fact the last counts."""
EXPERTS = "model.num_moe_experts"
CAPACITY = "model.moe_expert_capacity_factor"
SIZES = "model.hierarchical_context_parallel_sizes"
DISTRIBUTED = ("ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer")
SHARDED = ("ddp.use_megatron_fsdp", "dist.use_megatron_fsdp")
PRECISION = "mixed_precision"
NAMES: Mapping[str, str] = {
    "bf16_mixed": "bf16",
    "fp16_mixed": "fp16",
    "bf16_with_fp8_delayed_scaling_mixed": "fp8",
    "fp16_with_fp8_delayed_scaling_mixed": "fp8",
    "bf16_with_fp8_current_scaling_mixed": "fp8",
    "fp16_with_fp8_current_scaling_mixed": "fp8",
    "bf16_with_fp8_subchannel_scaling_mixed": "fp8",
    "fp16_with_fp8_subchannel_scaling_mixed": "fp8",
    "nemotron_h_bf16_with_fp8_current_scaling_mixed": "fp8",
    "nanov2_bf16_with_fp8_current_scaling_mixed": "fp8",
    "bf16_with_mxfp8_mixed": "mxfp8",
    "fp16_with_mxfp8_mixed": "mxfp8",
    "bf16_with_nvfp4_mixed": "nvfp4",
    "nemotron_3_super_bf16_with_nvfp4_mixed": "nvfp4",
    "nemotron_3_ultra_bf16_with_nvfp4_mixed": "nvfp4",
}
"""Names of precisions; a hyphen is as good as an underscore."""


def config_facts(settings: ConfigValues) -> Facts:
    """Every fact that the fields state."""
    facts: Facts = {"stack": Fact("megatron-bridge", "fields of Megatron-Bridge")}
    for key, path in NUMBERS.items():
        value = settings.number(key)
        if value is not None:
            facts[path] = settings.fact(key, value)
    parts: tuple[Callable[[ConfigValues, Facts], Facts], ...] = (
        *(_layout, _experts, _next_tokens, _sharding, stage_facts, _recompute),
        *(_precision, _optimizer, _width, _capacity, _stack),
    )
    for part in parts:
        facts |= part(settings, facts)
    meaningless = _meaningless(settings, facts)
    return {path: fact for path, fact in facts.items() if path not in meaningless}


def _meaningless(settings: ConfigValues, facts: Facts) -> set[str]:
    """Sizes that a saved configuration has by default although its model has no such parts."""
    found: set[str] = set()
    if "model.experts" not in facts:
        found |= {"model.experts_per_token", "model.expert_intermediate"}
    if settings.truth("model.multi_latent_attention"):
        found |= {"model.kv_heads", "model.head_dim"}
    if EXPERTS in settings and settings.get(EXPERTS) is None:
        found |= {"stack.deduplicates_exchange"}
    return found


def any_on(settings: ConfigValues, keys: tuple[str, ...]) -> str | None:
    """The first of ``keys`` that is true."""
    return next((key for key in keys if settings.truth(key)), None)


def _layout(settings: ConfigValues, facts: Facts) -> Facts:
    found: Facts = {}
    key, mapping = "model.sequence_parallel", "dist.use_tp_pp_dp_mapping"
    if key in settings:
        found["layout.sequence_parallel"] = settings.fact(key, settings.truth(key))
    if settings.truth(mapping):
        (order,) = (order for order, options in ORDERS.items() if options)
        found["layout.rank_order"] = settings.fact(mapping, order)
    kind, sizes = str(settings.get("model.cp_comm_type")), settings.get(SIZES)
    if kind in CONTEXT_OF and facts.get("layout.cp", Fact(1, "")).value > 1:
        said = context_in_megatron_words(kind, sizes if isinstance(sizes, tuple) else ())
        found["layout.context"] = settings.fact("model.cp_comm_type", said)
    return found


def _experts(settings: ConfigValues, facts: Facts) -> Facts:
    """What cuts experts where nobody says it; a run without experts writes tp there in the end."""
    key = "model.expert_tensor_parallel_size"
    if EXPERTS in settings and settings.get(EXPERTS) is None:
        return {"layout.etp": settings.fact(EXPERTS, 1)}
    if "layout.etp" in facts:
        return {}
    if "layout.ep" in facts and facts["layout.ep"].value > 1:
        return {"layout.etp": Fact(1, f"{settings.label(key)} left out: 1")}
    if "model.experts" in facts and "layout.tp" in facts:
        return {"layout.etp": Fact(facts["layout.tp"].value, f"{settings.label(key)} left out: as tp")}
    return {}


def _next_tokens(settings: ConfigValues, facts: Facts) -> Facts:
    """Layers that predict further tokens: as many as stand there, none for null."""
    key, factor = "model.mtp_num_layers", "model.mtp_loss_scaling_factor"
    if key not in settings:
        return {}
    count = settings.number(key, least=0) if settings.get(key) is not None else 0
    found = {} if count is None else {NEXT_LAYERS: settings.fact(key, count)}
    if not count:
        return found
    said = settings.get(factor)
    words = settings.words(factor) + (f": {USUAL_WEIGHT}" if said is None else "")
    return found | weight_fact(USUAL_WEIGHT if said is None else str(said), words, settings.problems)


def _sharding(settings: ConfigValues, facts: Facts) -> Facts:
    sharded, distributed = any_on(settings, SHARDED), any_on(settings, DISTRIBUTED)
    if settings.truth("dist.use_torch_fsdp2"):
        found = {"sharding": settings.fact("dist.use_torch_fsdp2", "zero3")}
    elif sharded:
        strategies = {strategy: sharding for sharding, strategy in STRATEGIES.items()}
        strategy = str(settings.get("ddp.data_parallel_sharding_strategy", "no_shard"))
        known = strategies | {"no_shard": "none", "optim": "zero1"}
        if strategy not in known:
            hint = nearest(strategy, known)
            settings.problem("ddp.data_parallel_sharding_strategy", "no such strategy", hint)
        found = {"sharding": Fact(known.get(strategy, "none"), f"{settings.words(sharded)} with {strategy}")}
    elif distributed:
        found = {"sharding": settings.fact(distributed, "zero1")}
    else:
        said = next((key for key in DISTRIBUTED if key in settings), None)
        return {"sharding": settings.fact(said, "none")} if said else {}
    if found["sharding"].value == "zero3":
        found["gather"] = Fact("per-layer", found["sharding"].words)
    return found | _instances(settings, found["sharding"].value)


def _instances(settings: ConfigValues, sharding: str) -> Facts:
    key = "ddp.num_distributed_optimizer_instances"
    copies = settings.number(key)
    return {"layout.dp_replicate": settings.fact(key, copies)} if copies and sharding != "none" else {}


def _recompute(settings: ConfigValues, facts: Facts) -> Facts:
    key, modules = "model.recompute_granularity", "model.recompute_modules"
    granularity = settings.get(key)
    if granularity not in ("full", "selective"):
        return {"recompute": settings.fact(key, "none")} if key in settings else {}
    if granularity == "full":
        return {"recompute": settings.fact(key, "full")}
    chosen = tuple(name for name in names_of(settings.get(modules)) if name in RECOMPUTES)
    if chosen in ((), ("core_attn",)):
        return {"recompute": settings.fact(key, "selective")}
    return {"recompute": Fact(chosen, f"{settings.words(key)}, {settings.words(modules)}")}


def names_of(value: Any) -> tuple[str, ...]:
    """The names of a list, or of text with spaces between."""
    return tuple(map(str, value)) if isinstance(value, tuple) else tuple(str(value or "").split())


def _precision(settings: ConfigValues, facts: Facts) -> Facts:
    name = settings.get(PRECISION)
    if isinstance(name, str):
        precision = NAMES.get(name.replace("-", "_"))
        if precision is None:
            settings.problem(PRECISION, "no such precision", nearest(name, NAMES))
            return {}
        return {"workload.precision": settings.fact(PRECISION, precision)}
    for field, precision in (
        ("fp4", "nvfp4"),
        ("fp8", "fp8"),
        ("fp16", "fp16"),
        ("bf16", "bf16"),
        ("fp32", "fp32"),
    ):
        key = f"{PRECISION}.{field}"
        if settings.get(key) not in (None, False):
            scaled = field == "fp8" and settings.get(f"{PRECISION}.fp8_recipe") == "mxfp8"
            return {"workload.precision": settings.fact(key, "mxfp8" if scaled else precision)}
    return {}


def _optimizer(settings: ConfigValues, facts: Facts) -> Facts:
    key = "optimizer.optimizer"
    ours = {theirs: name for name, theirs in OPTIMIZERS.items()}
    name = ours.get(str(settings.get(key)))
    return {"workload.optimizer": settings.fact(key, name)} if name else {}


def _width(settings: ConfigValues, facts: Facts) -> Facts:
    """The dense feed-forward width; a model of experts keeps a number there that no layer may have."""
    key = "model.ffn_hidden_size"
    width = settings.number(key) if "model.experts" not in facts else None
    return {"model.intermediate": settings.fact(key, width)} if width else {}


def _capacity(settings: ConfigValues, facts: Facts) -> Facts:
    factor = settings.get(CAPACITY)
    if factor is None or (EXPERTS in settings and settings.get(EXPERTS) is None):
        return {}
    policy = str(settings.get("model.moe_token_drop_policy", "probs"))
    padded = settings.truth("model.moe_pad_expert_input_to_capacity")
    return capacity_facts(str(factor), policy, padded, settings.words(CAPACITY))


def _stack(settings: ConfigValues, facts: Facts) -> Facts:
    """What of the run is a fact of the stack rather than of the plan."""
    found = {
        f"stack.{name}": settings.fact(key, settings.truth(key))
        for key, name in (
            ("ddp.overlap_grad_reduce", "overlap_gradient_reduction"),
            ("ddp.overlap_param_gather", "overlap_parameter_gather"),
            ("model.overlap_moe_expert_parallel_comm", "overlap_expert_exchange"),
            ("comm_overlap.overlap_moe_expert_parallel_comm", "overlap_expert_exchange"),
        )
        if key in settings
    }
    dispatcher = "model.moe_token_dispatcher_type"
    if settings.get(dispatcher) is not None:
        flexible = settings.get(dispatcher) == "flex"
        found["stack.deduplicates_exchange"] = settings.fact(dispatcher, flexible)
    name = settings.get(PRECISION)
    if isinstance(name, str):
        width = settings.fact(PRECISION, 2 if re.match("fp16", name) else 4)
        return found | {"stack.gradient_communication_bytes": width, "stack.gradient_bytes": width}
    key = f"{PRECISION}.grad_reduce_in_fp32"
    if key in settings:
        width = settings.fact(key, 4 if settings.truth(key, default=True) else 2)
        found |= {"stack.gradient_communication_bytes": width, "stack.gradient_bytes": width}
    return found
