"""The keys of a DeepSpeed 0.19.8 configuration that a plan has a word for.

Batch arithmetic: DeepSpeed holds ``train_batch_size`` against micro-batch · accumulation · all ranks, those of AutoTP
included (``runtime/config.py``: no mpu comes with a Hugging Face model). With tp > 1 the key is therefore left out:
micro-batch and accumulation say the same. ZeRO shards over all of data parallelism. AutoTP cuts a model by its
``tp_plan``; AutoEP (``module_inject/auto_ep.py``) replaces the expert layers of the families that it has a preset for
and lays ep over neighbouring ranks.
"""

from functools import partial

from meshwright.frameworks.option_table import ComputedRow, Facts, OptionRow, OptionTable, constant, never

ZERO, STAGE, OVERLAP = (
    "zero_optimization",
    "zero_optimization.stage",
    "zero_optimization.overlap_comm",
)
TRAIN, MICRO = "train_batch_size", "train_micro_batch_size_per_gpu"
ACCUMULATION = "gradient_accumulation_steps"
LOW_MASTER, LOW_MOMENTS = "bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states"
WIRE, ACCUMULATED = "communication_data_type", "data_types.grad_accum_dtype"
BF16, FP16, TP = "bf16.enabled", "fp16.enabled", "tensor_parallel.autotp_size"
EXPERTS, EP, CP = "expert_parallel.enabled", "expert_parallel.autoep_size", "sequence_parallel_size"
OPTIMIZER_HOME, OPTIMIZER_RATIO, PARAMETER_HOME = (
    "zero_optimization.offload_optimizer.device",
    "zero_optimization.offload_optimizer.ratio",
    "zero_optimization.offload_param.device",
)
STAGES = ("none", "zero1", "zero2", "zero3")
EXPERT_PRESETS = {
    "mixtral": "mixtral",
    "qwen2_moe": "qwen3_moe",
    "qwen3_moe": "qwen3_moe",
    "deepseek_v2": "deepseek_v2",
    "deepseek_v3": "deepseek_v3",
}
"""Families whose experts AutoEP knows, with its name for them."""
GRADIENT_CLIPPING = 1.0
"""The default of TrainingArguments, which refuse another value in the file."""


def _other_type(facts: Facts, key: str) -> str | None:
    """Return an element type that a plan asks for and that is not DeepSpeed's own, the one of the precision."""
    found: str = facts[f"dtypes.{key}"]
    return found if facts["dtypes.written"] and found != facts["workload.precision"] else None


def _stage(facts: Facts) -> int:
    """Return ZeRO's stage; states that one rank has alone are on the host from the stage on that reads the key."""
    stage = STAGES.index(facts["sharding"])
    optimizer, parameters = facts["offload.optimizer"], facts["offload.parameters"]
    if stage or not (optimizer or parameters):
        return stage
    return 3 if parameters or optimizer < 1 else 2


def _on_host(key: str, facts: Facts) -> str | None:
    return "cpu" if facts[key] else None


def _part_on_host(facts: Facts) -> float | None:
    share: float = facts["offload.optimizer"]
    return share if 0 < share < 1 else None


def _has_low_states(facts: Facts) -> bool:
    return bool(facts["dtypes.written"] and facts["dtypes.master"] == "none")


def _cuts_tensors(facts: Facts) -> bool:
    return bool(facts["layout.tp"] > 1)


def _spreads_experts(facts: Facts) -> bool:
    return facts.get("layout.ep", 1) > 1


TABLE = OptionTable(
    "deepspeed",
    "0.19.8",
    (
        ComputedRow(
            TRAIN, lambda facts: facts["workload.global_batch"], lambda facts: facts["layout.tp"] == 1
        ),
        OptionRow(MICRO, "pipeline.micro_batch"),
        ComputedRow(ACCUMULATION, lambda facts: facts["accumulation"]),
        constant("gradient_clipping", GRADIENT_CLIPPING),
        constant("steps_per_print", 1),
        ComputedRow(BF16, lambda facts: facts["workload.precision"] == "bf16"),
        ComputedRow(FP16, lambda facts: facts["workload.precision"] == "fp16"),
        ComputedRow(WIRE, lambda facts: _other_type(facts, "reduce")),
        ComputedRow(ACCUMULATED, lambda facts: _other_type(facts, "gradient")),
        *(constant(key, True, _has_low_states) for key in (LOW_MASTER, LOW_MOMENTS)),
        ComputedRow(STAGE, _stage),
        ComputedRow(OPTIMIZER_HOME, partial(_on_host, "offload.optimizer")),
        ComputedRow(OPTIMIZER_RATIO, _part_on_host),
        ComputedRow(PARAMETER_HOME, partial(_on_host, "offload.parameters")),
        ComputedRow(
            OVERLAP,
            lambda facts: facts["stack.overlap_gradient_reduction"],
            lambda facts: _stage(facts) > 0,
        ),
        constant("zero_force_ds_cpu_optimizer", False, lambda facts: facts["offload.optimizer"] > 0),
        constant("zero_allow_untested_optimizer", True, lambda facts: facts["workload.optimizer"] != "adamw"),
        ComputedRow(TP, lambda facts: facts["layout.tp"], _cuts_tensors),
        constant(EXPERTS, True, _spreads_experts),
        ComputedRow(EP, lambda facts: facts["layout.ep"], _spreads_experts),
        ComputedRow(
            "expert_parallel.preset_model",
            lambda facts: EXPERT_PRESETS[facts["model.family"]],
            _spreads_experts,
        ),
        OptionRow(CP, "layout.cp", when=never),
        OptionRow("data_parallel_size", "dp", when=never),
        OptionRow("pipeline.stages", "layout.pp", when=never),
    ),
)
