"""The options of torchtitan 0.3.0 that a plan has a word for; activation checkpointing is a subcommand.

Batch arithmetic: ``local_batch_size`` is per data-parallel rank and per accumulation step. Without a pipeline
one accumulation step is one micro-batch; with one, a single step of micro_batch·micro_batches sequences is
cut by ``pipeline_parallel_microbatch_size``. Stages are written out with ``module_fqns_per_model_part``. FSDP
shards over dp_shard·cp; ``fsdp_reshard_after_forward`` always = gather per layer; never = once per
micro-batch (zero2), or once per step under a pipeline, which keeps parameters until its last micro-batch. Experts
lie on a mesh (efsdp, ep) over dp_shard·cp·tp.
"""

from meshwright.frameworks.option_table import (
    NUMBER,
    OFF_FLAG,
    Codec,
    ComputedRow,
    Facts,
    OptionRow,
    OptionTable,
    OptionValues,
    constant,
)
from meshwright.frameworks.torchtitan.exporting import plan_to_options as plan

MODULE, CONFIG = "--module", "--config"
P, T = "--parallelism.", "--training."
SHARD, RESHARD = f"{P}data_parallel_shard_degree", f"{P}fsdp_reshard_after_forward"
PP, SCHEDULE = f"{P}pipeline_parallel_degree", f"{P}pipeline_parallel_schedule"
MODULES, MICRO_BATCH = f"{P}module_fqns_per_model_part", f"{P}pipeline_parallel_microbatch_size"
LOCAL_BATCH, GLOBAL_BATCH = f"{T}local_batch_size", f"{T}global_batch_size"
OFFLOAD = f"{T}enable_cpu_offload"
DTYPE, STATES_TYPE = f"{T}mixed_precision_param", f"{T}dtype"
PRECISION = "workload.precision"


def _number_or_open(values: OptionValues, name: str) -> int | None:
    return None if values.get(name) == "-1" else values.number(name)


OPEN_NUMBER = Codec(lambda number: number, _number_or_open)
"""A whole number; -1 leaves it to torchtitan."""


def _has_pipeline(facts: Facts) -> bool:
    return bool(facts["layout.pp"] > 1)


TABLE = OptionTable(
    "torchtitan",
    "0.3.0",
    (
        OptionRow(f"{P}data_parallel_replicate_degree", "layout.dp_replicate"),
        OptionRow(SHARD, "layout.dp_shard", OPEN_NUMBER),
        OptionRow(f"{P}context_parallel_degree", "layout.cp"),
        OptionRow(f"{P}tensor_parallel_degree", "layout.tp"),
        OptionRow(PP, "layout.pp"),
        OptionRow(f"{P}expert_parallel_degree", "layout.ep"),
        OptionRow(
            f"{P}no_enable_sequence_parallel",
            "layout.sequence_parallel",
            OFF_FLAG,
            default=True,
            when=lambda facts: facts["layout.tp"] > 1,
        ),
        ComputedRow(RESHARD, plan.reshard_policy),
        ComputedRow(SCHEDULE, lambda facts: plan.SCHEDULES[facts["pipeline.schedule"]], _has_pipeline),
        ComputedRow(MODULES, plan.stage_modules, _has_pipeline),
        ComputedRow(MICRO_BATCH, lambda facts: facts["pipeline.micro_batch"], _has_pipeline),
        OptionRow(f"{T}seq_len", "workload.seq_len"),
        OptionRow(LOCAL_BATCH, "local_batch"),
        OptionRow(GLOBAL_BATCH, "workload.global_batch", OPEN_NUMBER),
        constant(DTYPE, "bfloat16"),
        constant(STATES_TYPE, "bfloat16", lambda facts: facts["dtypes.master"] == "none"),
        constant(OFFLOAD, True, lambda facts: facts["offload.optimizer"] > 0),
        constant(f"{T}disable_cuda_graphs", True, plan.is_not_captured),
    ),
)
NUMBERS = frozenset(row.option for row in TABLE.rows if isinstance(row, OptionRow) and row.codec is NUMBER)
