"""The keys of an Accelerate 1.15.0 configuration that a plan has a word for.

Sharded states run under FSDP2: ``parallelism_config`` makes a mesh of dp_replicate, dp_shard, cp and tp, and FSDP
shards over dp_shard·cp. ``fsdp_reshard_after_forward`` true = parameters are gathered per layer (zero3), false = once
per micro-batch and kept from forward to backward (what its documentation calls ZeRO-2, ``usage_guides/fsdp.md``).
Without sharding the processes run plain data parallelism, or one tensor-parallel group. ``accelerate launch`` knows a
key by its own name, without that of its section. Sources: ``parallelism_config.py``, ``utils/fsdp_utils.py``,
``commands/launch.py``.
"""

from meshwright.frameworks.option_table import (
    FLAG,
    ComputedRow,
    Facts,
    OptionRow,
    OptionTable,
    constant,
    never,
    one_of,
)

KIND, PRECISION, PROCESSES, MACHINES = "distributed_type", "mixed_precision", "num_processes", "num_machines"
ENVIRONMENT = "compute_environment"
VERSION, RESHARD, WRAP = "fsdp_version", "fsdp_reshard_after_forward", "fsdp_auto_wrap_policy"
CHECKPOINTING, RAM_LOADING = "fsdp_activation_checkpointing", "fsdp_cpu_ram_efficient_loading"
OFFLOAD = "fsdp_offload_params"
WRAPPED = "TRANSFORMER_BASED_WRAP"
PREFIX, MEGATRON = "parallelism_config_", "megatron_lm_"
FSDP_SECTION, MESH_SECTION, MEGATRON_SECTION = "fsdp_config", "parallelism_config", "megatron_lm_config"
MESH = ("dp_replicate", "dp_shard", "tp", "cp")
MIXED_PRECISION = {"fp32": "no", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}


def _kind(facts: Facts) -> str:
    """Ways in which Accelerate starts the processes."""
    if facts["sharding"] != "none":
        return "FSDP"
    return "MULTI_GPU" if facts["devices"] > 1 else "NO"


def _is_sharded(facts: Facts) -> bool:
    return bool(facts["sharding"] != "none")


def _has_mesh(facts: Facts) -> bool:
    return _is_sharded(facts) or facts["layout.tp"] > 1


def _is_fp8(facts: Facts) -> bool:
    return bool(facts["workload.precision"] == "fp8")


def _loads_on_one_rank(facts: Facts) -> bool:
    """Weights go to each rank from the first one's, which neither tensor parallelism nor torchao can follow."""
    return facts["layout.tp"] == 1 and not _is_fp8(facts)


M = f"{MEGATRON_SECTION}.{MEGATRON}"
MEGATRON_ROWS = (
    OptionRow(f"{M}tp_degree", "layout.tp", when=never),
    OptionRow(f"{M}pp_degree", "layout.pp", when=never),
    OptionRow(f"{M}context_parallel_size", "layout.cp", when=never),
    OptionRow(f"{M}expert_model_parallel_size", "layout.ep", when=never),
    OptionRow(f"{M}expert_tensor_parallel_size", "layout.etp", when=never),
    OptionRow(f"{M}sequence_parallelism", "layout.sequence_parallel", FLAG, default=False, when=never),
)
TABLE = OptionTable(
    "accelerate",
    "1.15.0",
    (
        constant(ENVIRONMENT, "LOCAL_MACHINE"),
        ComputedRow(KIND, _kind),
        OptionRow(PRECISION, "workload.precision", one_of(MIXED_PRECISION)),
        ComputedRow(MACHINES, lambda facts: facts["nodes"]),
        constant("machine_rank", 0),
        OptionRow(PROCESSES, "devices"),
        constant(f"{FSDP_SECTION}.{VERSION}", 2, _is_sharded),
        ComputedRow(f"{FSDP_SECTION}.{RESHARD}", lambda facts: facts["sharding"] == "zero3", _is_sharded),
        constant(f"{FSDP_SECTION}.{WRAP}", WRAPPED, _is_sharded),
        ComputedRow(
            f"{FSDP_SECTION}.{CHECKPOINTING}", lambda facts: facts["recompute"] == "full", _is_sharded
        ),
        ComputedRow(f"{FSDP_SECTION}.{RAM_LOADING}", _loads_on_one_rank, _is_sharded),
        constant(f"{FSDP_SECTION}.fsdp_state_dict_type", "SHARDED_STATE_DICT", _is_sharded),
        ComputedRow(f"{FSDP_SECTION}.{OFFLOAD}", lambda facts: facts["offload.optimizer"] > 0, _is_sharded),
        *(
            OptionRow(f"{MESH_SECTION}.{PREFIX}{axis}_size", f"layout.{axis}", when=_has_mesh)
            for axis in MESH
        ),
        constant("fp8_config.backend", "AO", _is_fp8),
        *MEGATRON_ROWS,
    ),
)
