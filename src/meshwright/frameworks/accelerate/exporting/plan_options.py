"""A uniform plan as an Accelerate 1.15.0 configuration.

Sharded states run under FSDP2: ``parallelism_config`` makes a mesh of dp_replicate, dp_shard, cp and tp, and FSDP
shards over dp_shard·cp. ``fsdp_reshard_after_forward`` true = parameters are gathered per layer (zero3), false = once
per micro-batch and kept from forward to backward (what its documentation calls ZeRO-2, ``usage_guides/fsdp.md``).
Without sharding the processes run plain data parallelism, or one tensor-parallel group.
Sources: ``parallelism_config.py``, ``utils/fsdp_utils.py``, ``commands/launch.py``.
"""

from meshwright.frameworks.exporting.uniform_plan import UniformPlan
from meshwright.launchers.launch_script import Job

Section = dict[str, object]
MIXED_PRECISION = {"fp32": "no", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}
MESH = {"dp_replicate": "dp_replicate", "dp_shard": "dp_shard", "tp": "tp", "cp": "cp"}
PREFIX = "parallelism_config_"


def accelerate_config(plan: UniformPlan, job: Job) -> Section:
    """The configuration. For a plan without ``plan_problems``."""
    config: Section = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": distributed_type(plan),
        "mixed_precision": MIXED_PRECISION[plan.long.workload.precision],
        "num_machines": job.nodes,
        "machine_rank": 0,
        "num_processes": plan.devices,
    }
    if plan.sharding != "none":
        config["fsdp_config"] = _fsdp(plan)
    if plan.sharding != "none" or plan.tp > 1:
        config["parallelism_config"] = _mesh(plan)
    if plan.long.workload.precision == "fp8":
        config["fp8_config"] = {"backend": "AO"}
    return config


def distributed_type(plan: UniformPlan) -> str:
    """How Accelerate starts the processes."""
    if plan.sharding != "none":
        return "FSDP"
    return "MULTI_GPU" if plan.devices > 1 else "NO"


def _fsdp(plan: UniformPlan) -> Section:
    """Weights go to each rank from the first one's, which neither tensor parallelism nor torchao can follow."""
    return {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": plan.sharding == "zero3",
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_activation_checkpointing": plan.recompute == "full",
        "fsdp_cpu_ram_efficient_loading": plan.tp == 1 and plan.long.workload.precision != "fp8",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_offload_params": False,
    }


def _mesh(plan: UniformPlan) -> Section:
    return {f"{PREFIX}{name}_size": getattr(plan, axis) for axis, name in MESH.items()}
