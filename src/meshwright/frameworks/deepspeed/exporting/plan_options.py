"""A uniform plan as a DeepSpeed 0.19.8 configuration.

Batch arithmetic: DeepSpeed holds ``train_batch_size`` against micro-batch · accumulation · all ranks, those of AutoTP
included (``runtime/config.py``: no mpu comes with a Hugging Face model). With tp > 1 the key is therefore left out:
micro-batch and accumulation say the same. ZeRO shards over all of data parallelism. AutoTP cuts a model by its
``tp_plan``; AutoEP (``module_inject/auto_ep.py``) replaces the expert layers of the families that it has a preset for
and lays ep over neighbouring ranks.
"""

from meshwright.frameworks.exporting.uniform_plan import UniformPlan
from meshwright.model.architecture import Architecture
from meshwright.stack.stack import Stack

STAGES = {"none": 0, "zero1": 1, "zero2": 2, "zero3": 3}
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


def ds_config(plan: UniformPlan, arch: Architecture, stack: Stack) -> dict[str, object]:
    """The configuration. For a plan without ``plan_problems``."""
    work = plan.long.workload
    return {
        **({"train_batch_size": work.global_batch} if plan.tp == 1 else {}),
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.micro_batches,
        "gradient_clipping": GRADIENT_CLIPPING,
        "steps_per_print": 1,
        "bf16": {"enabled": work.precision == "bf16"},
        "fp16": {"enabled": work.precision == "fp16"},
        "zero_optimization": _zero(plan, stack),
        **({"zero_allow_untested_optimizer": True} if work.optimizer != "adamw" else {}),
        **({"tensor_parallel": {"autotp_size": plan.tp}} if plan.tp > 1 else {}),
        **_expert_parallel(plan, arch),
    }


def _zero(plan: UniformPlan, stack: Stack) -> dict[str, object]:
    stage = STAGES[plan.sharding]
    overlap = {"overlap_comm": stack.overlap_gradient_reduction} if stage else {}
    return {"stage": stage, **overlap}


def _expert_parallel(plan: UniformPlan, arch: Architecture) -> dict[str, object]:
    if plan.experts is None or plan.experts.ep == 1:
        return {}
    preset = EXPERT_PRESETS[arch.family]
    section = {"enabled": True, "autoep_size": plan.experts.ep, "preset_model": preset}
    return {"expert_parallel": section}
