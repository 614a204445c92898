"""The fields of a Megatron-Bridge 0.6.2 configuration that a plan has a word for.

Bridge runs Megatron-Core, so a plan has Megatron's values (``frameworks/megatron/exporting/plan_to_options.py``) under
Bridge's names. A recipe has set many of these before; what a plan does not ask for is therefore written as Megatron's
default. Its count of virtual stages is per pipeline rank. Sources: Megatron-Bridge 0.6.2, ``training/config.py``,
``training/mixed_precision.py``, ``models/gpt_provider.py``; megatron-core 0.19.2,
``core/transformer/transformer_config.py``.

Values that depend on several facts are written by functions of ``exporting/plan_to_options.py``;
``importing/options_to_plan.py`` reads them back.
"""

from collections.abc import Mapping
from functools import partial

from meshwright.frameworks.megatron.exporting import plan_to_options as plan
from meshwright.frameworks.megatron.exporting.optimizer_options import NAMES, OPTIMIZERS, optimizer_value
from meshwright.frameworks.megatron_bridge.exporting import plan_to_options as bridge
from meshwright.frameworks.option_table import (
    FLAG,
    ComputedRow,
    Facts,
    OptionRow,
    OptionTable,
    Row,
    constant,
    never,
    one_of,
)

TP, MICRO_BATCH = "model.tensor_model_parallel_size", "train.micro_batch_size"
PP, CP = "model.pipeline_model_parallel_size", "model.context_parallel_size"
CONTEXT, CONTEXT_SIZES = "model.cp_comm_type", "model.hierarchical_context_parallel_sizes"
EP, ETP = "model.expert_model_parallel_size", "model.expert_tensor_parallel_size"
EXPERTS, DISPATCHER = "model.num_moe_experts", "model.moe_token_dispatcher_type"
EXCHANGE_OVERLAP = "model.overlap_moe_expert_parallel_comm"
CAPACITY, DROP = "model.moe_expert_capacity_factor", "model.moe_token_drop_policy"
PAD, SEQUENCE_PARALLEL = "model.moe_pad_expert_input_to_capacity", "model.sequence_parallel"
LAYOUT, CHUNKS = "model.pipeline_model_parallel_layout", "model.virtual_pipeline_model_parallel_size"
GRANULARITY, METHOD = "model.recompute_granularity", "model.recompute_method"
RECOMPUTED_LAYERS, MODULES = "model.recompute_num_layers", "model.recompute_modules"
MTP_LAYERS, MTP_WEIGHT = "model.mtp_num_layers", "model.mtp_loss_scaling_factor"
LENGTH, DATA_LENGTH, BATCH = "model.seq_length", "dataset.seq_length", "train.global_batch_size"
LAYERS = "model.num_layers"
ENDS = ("model.num_layers_in_first_pipeline_stage", "model.num_layers_in_last_pipeline_stage")
ACCOUNT = ("model.account_for_embedding_in_pipeline_split", "model.account_for_loss_in_pipeline_split")
DISTRIBUTED = ("ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer")
GATHER_OVERLAPS = ("ddp.overlap_param_gather", "optimizer.overlap_param_gather")
SHARDED = ("ddp.use_megatron_fsdp", "dist.use_megatron_fsdp")
INSTANCES, STRATEGY = "ddp.num_distributed_optimizer_instances", "ddp.data_parallel_sharding_strategy"
PP_BEFORE_DP, CHECKPOINTS = "dist.use_tp_pp_dp_mapping", "checkpoint.ckpt_format"
OPTIMIZER, PRECISION = "optimizer.optimizer", "mixed_precision"
OPTIMIZER_HOME, OPTIMIZER_SHARE = "optimizer.optimizer_cpu_offload", "optimizer.optimizer_offload_fraction"
NARROW, MAIN_GRADIENTS = "optimizer.use_precision_aware_optimizer", "optimizer.main_grads_dtype"
NARROW_STATES = {
    "optimizer.main_params_dtype": "dtypes.master",
    "optimizer.exp_avg_dtype": "dtypes.first_moment",
    "optimizer.exp_avg_sq_dtype": "dtypes.second_moment",
}
"""Types of the optimizer's states, which Bridge reads where the optimizer knows them."""


def _has_experts(facts: Facts) -> bool:
    return "model.experts" in facts


def _constants(values: Mapping[str, object]) -> tuple[ComputedRow, ...]:
    return tuple(constant(option, value) for option, value in values.items())


PLAN: tuple[Row, ...] = (
    OptionRow(TP, "layout.tp"),
    OptionRow(PP, "layout.pp"),
    OptionRow(CP, "layout.cp"),
    ComputedRow(CONTEXT, plan.context_kind),
    ComputedRow(CONTEXT_SIZES, plan.context_sizes),
    OptionRow(EP, "layout.ep"),
    OptionRow(ETP, "layout.etp"),
    OptionRow(
        EXCHANGE_OVERLAP, "stack.overlap_expert_exchange", FLAG, when=plan.overlaps_exchange, otherwise=False
    ),
    OptionRow(
        "comm_overlap.overlap_moe_expert_parallel_comm", "stack.overlap_expert_exchange", FLAG, when=never
    ),
    ComputedRow(CAPACITY, lambda facts: plan.capacity(facts, "factor"), _has_experts),
    ComputedRow(DROP, lambda facts: plan.capacity(facts, "drop"), lambda facts: "workload.capacity" in facts),
    ComputedRow(PAD, lambda facts: plan.capacity(facts, "pad") or False, _has_experts),
    OptionRow(SEQUENCE_PARALLEL, "layout.sequence_parallel", FLAG),
    ComputedRow("model.init_model_with_meta_device", lambda facts: facts["sharding"] == "zero3"),
    ComputedRow(LAYOUT, plan.layout_text),
    OptionRow(
        CHUNKS,
        "pipeline.virtual_stages",
        when=lambda facts: facts["pipeline.virtual_stages"] > 1,
        otherwise=None,
    ),
    ComputedRow(GRANULARITY, lambda facts: plan.recompute(facts, "granularity")),
    ComputedRow(METHOD, lambda facts: plan.recompute(facts, "method")),
    ComputedRow(RECOMPUTED_LAYERS, lambda facts: plan.recompute(facts, "layers")),
    ComputedRow(MODULES, lambda facts: plan.recompute(facts, "modules")),
    ComputedRow(MTP_LAYERS, lambda facts: facts.get("next_tokens.layers")),
    ComputedRow(
        MTP_WEIGHT, lambda facts: facts["next_tokens.weight"], lambda facts: "next_tokens.weight" in facts
    ),
    OptionRow(LENGTH, "workload.seq_len"),
    *_constants(dict.fromkeys(ENDS) | dict.fromkeys(ACCOUNT, False)),
    *_constants(
        {"model.tp_comm_overlap": False, "model.cuda_graph_impl": "none", "model.cuda_graph_modules": []}
    ),
    constant(DISPATCHER, "alltoall", _has_experts),
    constant("model.moe_shared_expert_overlap", False, _has_experts),
    constant("model.delay_wgrad_compute", False, _has_experts),
    ComputedRow("model.overlap_p2p_comm", bridge.overlaps_messages),
    ComputedRow("model.batch_p2p_comm", bridge.batches_messages),
    constant("model.gradient_accumulation_fusion", False, plan.is_fsdp),
    ComputedRow("model.vocab_size", bridge.padded_vocab),
    OptionRow(MICRO_BATCH, "pipeline.micro_batch"),
    OptionRow(BATCH, "workload.global_batch"),
    OptionRow("dataset.sequence_length", "workload.seq_len", when=never),
    OptionRow(DATA_LENGTH, "workload.seq_len"),
    ComputedRow(DISTRIBUTED[0], plan.is_sharded),
    OptionRow(INSTANCES, "layout.dp_replicate", when=plan.has_instances, otherwise=1),
    OptionRow(
        "ddp.overlap_grad_reduce",
        "stack.overlap_gradient_reduction",
        FLAG,
        when=plan.reduces_gradients,
        otherwise=False,
    ),
    OptionRow(
        GATHER_OVERLAPS[0],
        "stack.overlap_parameter_gather",
        FLAG,
        when=plan.gathers_parameters,
        otherwise=False,
    ),
    ComputedRow(SHARDED[0], plan.is_fsdp),
    ComputedRow(STRATEGY, lambda facts: plan.STRATEGIES.get(facts["sharding"], "no_shard")),
    constant("ddp.outer_dp_sharding_strategy", "no_shard"),
    ComputedRow(PP_BEFORE_DP, plan.pp_before_dp),
    ComputedRow(SHARDED[1], plan.is_fsdp),
    ComputedRow(DISTRIBUTED[1], plan.is_sharded),
    ComputedRow(GATHER_OVERLAPS[1], bridge.overlaps_gather),
    OptionRow(OPTIMIZER, "workload.optimizer", one_of(OPTIMIZERS)),
    *(ComputedRow(f"optimizer.{name}", partial(optimizer_value, name)) for name in NAMES),
    ComputedRow(NARROW, lambda facts: facts["dtypes.narrow"] or facts["offload.optimizer"] > 0),
    ComputedRow(OPTIMIZER_HOME, lambda facts: facts["offload.optimizer"] > 0 or None),
    ComputedRow(OPTIMIZER_SHARE, lambda facts: facts["offload.optimizer"] or None),
    ComputedRow(MAIN_GRADIENTS, lambda facts: bridge.torch_name(plan.narrow_gradients(facts))),
    *(ComputedRow(option, partial(bridge.narrow_state, path)) for option, path in NARROW_STATES.items()),
    ComputedRow(CHECKPOINTS, lambda facts: "fsdp_dtensor" if plan.is_fsdp(facts) else "torch_dist"),
    constant("tokenizer.use_tokenizer_vocab_size", False),
    constant("comm_overlap", None),
    ComputedRow(PRECISION, bridge.mixed_precision),
)
READ_ONLY = (
    OptionRow(LAYERS, "model.layers", when=never),
    OptionRow("model.hidden_size", "model.hidden", when=never),
    OptionRow("model.num_attention_heads", "model.heads", when=never),
    OptionRow("model.num_query_groups", "model.kv_heads", when=never),
    OptionRow("model.kv_channels", "model.head_dim", when=never),
    OptionRow(EXPERTS, "model.experts", when=never),
    OptionRow("model.moe_router_topk", "model.experts_per_token", when=never),
    OptionRow("model.moe_ffn_hidden_size", "model.expert_intermediate", when=never),
)
TABLE = OptionTable("megatron-bridge", "0.6.2", (*PLAN, *READ_ONLY))
