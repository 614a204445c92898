"""The short form of a plan: one layout for everything. Sugar for the long form (``plan/expand.py``).

The product pp·dp_replicate·dp_shard·cp·tp is the number of devices.
"""

from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from meshwright.plan.strict import Strict, name_or_list

MAX_DEGREE = 2**20
Version = Annotated[int, Field(ge=1, le=1)]
Degree = Annotated[int, Field(ge=1, le=MAX_DEGREE)]
Axis = Literal["tp", "cp", "dp_shard", "dp_replicate", "pp"]
ShardingName = Literal["none", "zero1", "zero2", "zero3"]
Gather = Literal["per-layer", "per-micro-batch", "per-step"]
RecomputeName = Literal["none", "selective", "full"]
RecomputeOperator = Literal[
    "core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj", "shared_experts"
]
Recompute = Annotated[
    Annotated[RecomputeName, Tag("<name>")]
    | Annotated[tuple[RecomputeOperator, ...], Field(min_length=1), Tag("<list>")],
    Discriminator(name_or_list),
]

DEFAULT_RANK_ORDER: tuple[Axis, ...] = ("tp", "cp", "dp_shard", "dp_replicate", "pp")


class WorkloadSpec(Strict):
    """The workload as a plan file writes it; ``workload/workload.py`` holds its rules."""

    task: str = "pretrain"
    seq_len: int
    global_batch: int
    precision: str = "bf16"
    optimizer: str = "adamw"


class ShortLayout(Strict):
    """Degrees of parallelism. ``sequence_parallel`` None means: on when tp > 1.

    ``rank_order`` lists the axes from fastest to slowest varying rank.
    """

    pp: Degree = 1
    dp_replicate: Degree = 1
    dp_shard: Degree = 1
    cp: Degree = 1
    tp: Degree = 1
    ep: Degree = 1
    etp: Degree = 1
    sequence_parallel: bool | None = None
    rank_order: tuple[Axis, ...] = DEFAULT_RANK_ORDER


class ShortPipeline(Strict):
    """How micro-batches pass the stages. ``micro_batch`` in sequences, ``virtual_stages`` per pp rank."""

    schedule: str = "1f1b"
    micro_batch: Degree = 1
    virtual_stages: Degree = 1


class ShortPlan(Strict):
    """A plan as people write it."""

    plan: Version
    model: str
    cluster: str
    workload: WorkloadSpec
    stack: str = "megatron-core"
    layout: ShortLayout = ShortLayout()
    sharding: ShardingName = "none"
    gather: Gather | None = None
    pipeline: ShortPipeline = ShortPipeline()
    recompute: Recompute = "none"
