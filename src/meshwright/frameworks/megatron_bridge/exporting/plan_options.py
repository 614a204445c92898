"""A uniform plan as overrides of a Megatron-Bridge 0.6.2 configuration.

Bridge runs Megatron-Core, so the plan is said in Megatron's options (``megatron_plan``) and each of them is written
under Bridge's name for it. A recipe has set many of these before; what Megatron leaves out is therefore written as
its default (``UNASKED``). Its count of virtual stages is per pipeline rank. Sources: Megatron-Bridge 0.6.2,
``training/config.py``, ``training/mixed_precision.py``, ``models/gpt_provider.py``; megatron-core 0.19.2,
``core/transformer/transformer_config.py``.
"""

from collections.abc import Mapping
from typing import Any

from meshwright.frameworks.exporting.expert_capacity import FACTOR, PAD, POLICY
from meshwright.frameworks.exporting.export_result import Refusal
from meshwright.frameworks.exporting.uniform_plan import UniformPlan
from meshwright.frameworks.megatron.exporting.multi_token_prediction import LAYERS, WEIGHT, next_token_options
from meshwright.frameworks.megatron.exporting.plan_options import exchange_refusals, plan_options
from meshwright.frameworks.option_names import Option
from meshwright.model.architecture import Architecture
from meshwright.stack.stack import Stack

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "--tensor-model-parallel-size": ("model.tensor_model_parallel_size",),
    "--pipeline-model-parallel-size": ("model.pipeline_model_parallel_size",),
    "--context-parallel-size": ("model.context_parallel_size",),
    "--cp-comm-type": ("model.cp_comm_type",),
    "--hierarchical-context-parallel-sizes": ("model.hierarchical_context_parallel_sizes",),
    "--expert-model-parallel-size": ("model.expert_model_parallel_size",),
    "--expert-tensor-parallel-size": ("model.expert_tensor_parallel_size",),
    "--overlap-moe-expert-parallel-comm": ("model.overlap_moe_expert_parallel_comm",),
    FACTOR: ("model.moe_expert_capacity_factor",),
    POLICY: ("model.moe_token_drop_policy",),
    PAD: ("model.moe_pad_expert_input_to_capacity",),
    "--sequence-parallel": ("model.sequence_parallel",),
    "--use-tp-pp-dp-mapping": ("dist.use_tp_pp_dp_mapping",),
    "--use-distributed-optimizer": ("ddp.use_distributed_optimizer", "optimizer.use_distributed_optimizer"),
    "--num-distributed-optimizer-instances": ("ddp.num_distributed_optimizer_instances",),
    "--overlap-grad-reduce": ("ddp.overlap_grad_reduce",),
    "--overlap-param-gather": ("ddp.overlap_param_gather", "optimizer.overlap_param_gather"),
    "--use-megatron-fsdp": ("ddp.use_megatron_fsdp", "dist.use_megatron_fsdp"),
    "--data-parallel-sharding-strategy": ("ddp.data_parallel_sharding_strategy",),
    "--ckpt-format": ("checkpoint.ckpt_format",),
    "--init-model-with-meta-device": ("model.init_model_with_meta_device",),
    "--pipeline-model-parallel-layout": ("model.pipeline_model_parallel_layout",),
    "--num-virtual-stages-per-pipeline-rank": ("model.virtual_pipeline_model_parallel_size",),
    "--recompute-granularity": ("model.recompute_granularity",),
    "--recompute-method": ("model.recompute_method",),
    "--recompute-num-layers": ("model.recompute_num_layers",),
    "--recompute-modules": ("model.recompute_modules",),
    "--micro-batch-size": ("train.micro_batch_size",),
    "--global-batch-size": ("train.global_batch_size",),
    LAYERS: ("model.mtp_num_layers",),
    WEIGHT: ("model.mtp_loss_scaling_factor",),
    "--seq-length": ("dataset.seq_length", "model.seq_length"),
    "--optimizer": ("optimizer.optimizer",),
}
"""Megatron's options of a plan and the fields that they are in Bridge."""
PRECISION_OPTIONS = {
    "--bf16": "bf16",
    "--fp16": "fp16",
    "--fp8-format": "fp8",
    "--fp8-recipe": "fp8_recipe",
    "--fp4-format": "fp4",
}
OTHERWISE = (
    "--no-overlap-p2p-communication",
    "--no-gradient-accumulation-fusion",
    "--attention-backend",
)
"""Options that ``_pipeline`` and ``_states`` say in other words, or that a file cannot say (``bridge_limits``)."""
UNASKED: Mapping[str, object] = {
    "model.virtual_pipeline_model_parallel_size": None,
    "model.pipeline_model_parallel_layout": None,
    "model.num_layers_in_first_pipeline_stage": None,
    "model.num_layers_in_last_pipeline_stage": None,
    "model.account_for_embedding_in_pipeline_split": False,
    "model.account_for_loss_in_pipeline_split": False,
    "model.cp_comm_type": None,
    "model.hierarchical_context_parallel_sizes": None,
    "model.sequence_parallel": False,
    "model.recompute_granularity": None,
    "model.recompute_method": None,
    "model.recompute_num_layers": None,
    "model.recompute_modules": None,
    "model.mtp_num_layers": None,
    "model.tp_comm_overlap": False,
    "model.init_model_with_meta_device": False,
    "model.cuda_graph_impl": "none",
    "model.cuda_graph_modules": [],
    "ddp.use_distributed_optimizer": False,
    "ddp.num_distributed_optimizer_instances": 1,
    "ddp.overlap_grad_reduce": False,
    "ddp.overlap_param_gather": False,
    "ddp.use_megatron_fsdp": False,
    "ddp.data_parallel_sharding_strategy": "no_shard",
    "ddp.outer_dp_sharding_strategy": "no_shard",
    "dist.use_tp_pp_dp_mapping": False,
    "dist.use_megatron_fsdp": False,
    "optimizer.use_distributed_optimizer": False,
    "optimizer.overlap_param_gather": False,
    "optimizer.use_precision_aware_optimizer": False,
    "optimizer.main_grads_dtype": "torch.float32",
    "optimizer.main_params_dtype": "torch.float32",
    "optimizer.exp_avg_dtype": "torch.float32",
    "optimizer.exp_avg_sq_dtype": "torch.float32",
    "checkpoint.ckpt_format": "torch_dist",
    "tokenizer.use_tokenizer_vocab_size": False,
    "comm_overlap": None,
}
"""What a plan has when no option says otherwise, whatever the recipe did."""
EXPERTS: Mapping[str, object] = {
    "model.moe_token_dispatcher_type": "alltoall",
    "model.moe_shared_expert_overlap": False,
    "model.overlap_moe_expert_parallel_comm": False,
    "model.moe_expert_capacity_factor": None,
    "model.moe_pad_expert_input_to_capacity": False,
    "model.delay_wgrad_compute": False,
}
NAMED_PRECISIONS = {"bf16": ("bf16_mixed", 4), "fp16": ("fp16_mixed", 2)}
"""Mixed precisions that Bridge has a name for, and bytes of a gradient on the wire in each."""
PLAIN_PRECISION: Mapping[str, object] = {
    "fp32": False,
    "fp16": False,
    "bf16": False,
    "fp8": None,
    "fp8_recipe": "tensorwise",
    "fp8_param_gather": False,
    "first_last_layers_bf16": False,
    "fp4": None,
    "fp4_param_gather": False,
    "reuse_grad_buf_for_mxfp8_param_ag": False,
}


def bridge_overrides(plan: UniformPlan, arch: Architecture, stack: Stack) -> dict[str, Any]:
    """The overrides as a tree. For a plan without ``plan_problems``."""
    options = [*plan_options(plan, stack), *next_token_options(arch)]
    assert {option[0] for option in options} <= {*OPTIONS, *PRECISION_OPTIONS, *OTHERWISE}
    found = {path: value for option in options for path, value in _fields(option)}
    found |= (
        _pipeline(plan, stack) | _states(options) | {"model.vocab_size": _padded_vocab(plan, arch, stack)}
    )
    found["mixed_precision"] = mixed_precision(plan, stack, options)
    return _tree(dict(UNASKED) | (dict(EXPERTS) if arch.moe else {}) | found)


def mixed_precision(plan: UniformPlan, stack: Stack, options: list[Option]) -> str | dict[str, object]:
    """Bridge's name of the precision where it has one that reduces gradients as the stack does, or all its fields."""
    precision, wire = plan.long.workload.precision, stack.gradient_communication_bytes
    if NAMED_PRECISIONS.get(precision, ("", 0))[1] == wire:
        return NAMED_PRECISIONS[precision][0]
    said = {PRECISION_OPTIONS[name]: value for name, *value in options if name in PRECISION_OPTIONS}
    dtype = "torch.float16" if precision == "fp16" else "torch.bfloat16"
    return {
        **PLAIN_PRECISION,
        **{name: value[0] if value else True for name, value in said.items()},
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "grad_reduce_in_fp32": wire == 4,
    }


def _fields(option: Option) -> list[tuple[str, object]]:
    name, *values = option
    return [(path, _value(name, values)) for path in OPTIONS.get(name, ())]


def _value(name: str, values: list[str]) -> object:
    if name == "--recompute-modules":
        return values
    if name == "--hierarchical-context-parallel-sizes":
        return [int(value) for value in values]
    if name in (FACTOR, WEIGHT):
        return float(values[0])
    text = values[0] if values else ""
    return int(text) if text.isdecimal() else text or True


def _pipeline(plan: UniformPlan, stack: Stack) -> dict[str, object]:
    """Messages: overlapped ones are sent one by one. A layout does not stand without the count of its chunks."""
    overlapped = plan.virtual_stages > 1 and stack.overlap_p2p
    found: dict[str, object] = {
        "model.overlap_p2p_comm": overlapped,
        "model.batch_p2p_comm": plan.pp > 1 and not overlapped,
    }
    if plan.virtual_stages > 1:
        found["model.virtual_pipeline_model_parallel_size"] = plan.virtual_stages
    return found


def _states(options: list[Option]) -> dict[str, object]:
    fused = ("--no-gradient-accumulation-fusion",) not in options
    return {} if fused else {"model.gradient_accumulation_fusion": False}


def _padded_vocab(plan: UniformPlan, arch: Architecture, stack: Stack) -> int:
    """The vocabulary that Megatron would pad to; Bridge takes the number as it stands."""
    multiple = stack.vocab_multiple * plan.tp
    return -(-arch.vocab // multiple) * multiple


def _tree(fields: Mapping[str, object]) -> dict[str, Any]:
    """Dotted names as nested mappings, sections in the order of a configuration."""
    tree: dict[str, Any] = {}
    for path, value in sorted(fields.items(), key=lambda item: _place(item[0])):
        section, _, name = path.partition(".")
        if name:
            tree.setdefault(section, {})[name] = value
        else:
            tree[section] = value
    return tree


SECTIONS = ("model", "train", "dataset", "ddp", "dist", "optimizer", "checkpoint", "tokenizer")


def _place(path: str) -> tuple[int, int]:
    """Sections in this order, in them degrees and batches first, as ``OPTIONS`` has them."""
    section, inside = path.partition(".")[0], [path for paths in OPTIONS.values() for path in paths]
    order = SECTIONS.index(section) if section in SECTIONS else len(SECTIONS)
    return order, inside.index(path) if path in inside else len(inside)


def plan_refusals(plan: UniformPlan, arch: Architecture, stack: Stack) -> list[Refusal]:
    """What Bridge means in its own way without a change to the plan."""
    refusals = exchange_refusals(plan, stack)
    if plan.long.workload.task == "sft":
        why = "the recipe reads pre-training data; recipes for fine-tuning bring data and tokenizer of their own"
        refusals.append(Refusal("workload.task", "sft", why))
    if not stack.attention.startswith("flash"):
        why = (
            "a file of overrides cannot choose the attention kernel: the recipe does (fused where it can be)"
        )
        refusals.append(Refusal("stack.attention", stack.attention, why))
    if arch.moe and stack.deduplicates_exchange:
        why = (
            "written as alltoall; DeepEP and HybridEP (model.moe_token_dispatcher_type flex) want variables "
            "and libraries of the site"
        )
        refusals.append(Refusal("stack.deduplicates_exchange", "true", why))
    return refusals
