"""The short form of a plan: one layout for everything. Sugar for the long form (``plan/expand.py``).

The product pp·dp_replicate·dp_shard·cp·tp is the number of devices.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag

from meshwright.plan.strict import Strict, name_or_list, name_or_mapping
from meshwright.schedule.choice import ScheduleChoice

MAX_DEGREE = 2**20
Version = Annotated[int, Field(ge=1, le=1)]
Degree = Annotated[int, Field(ge=1, le=MAX_DEGREE)]
Axis = Literal["tp", "cp", "dp_shard", "dp_replicate", "pp"]
ShardingName = Literal["none", "zero1", "zero2", "zero3"]
Gather = Literal["per-layer", "per-micro-batch", "per-unit", "per-step"]
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


class Schedule(Strict):
    """A schedule by name, with the knobs that are turned, or a hand-written action list in a file.

    ``memory_limit``: the most that a rank may hold, in times of what 1F1B holds on its first rank. ``unit``: the
    micro-batches that go through a rank's stages together. ``vocabulary``: the form in which embedding and head are
    spread over the pipeline ranks.
    """

    name: str | None = None
    file: str | None = None
    memory_limit: Annotated[float, Field(gt=0)] | None = None
    unit: Degree | None = None
    vocabulary: str | None = None

    @classmethod
    def of(cls, choice: ScheduleChoice) -> "Schedule":
        """What a plan writes for a choice."""
        return cls(
            name=choice.name,
            memory_limit=choice.memory_limit,
            unit=choice.unit,
            vocabulary=choice.vocabulary,
        )

    @property
    def choice(self) -> ScheduleChoice:
        """The name, which the table may not have, with the knobs."""
        return ScheduleChoice(self.name or "", self.memory_limit, self.unit, self.vocabulary)


def _name_alone(value: "str | Schedule") -> "str | Schedule":
    if isinstance(value, Schedule) and value.name is not None and value == Schedule(name=value.name):
        return value.name
    return value


NamedSchedule = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[Schedule, Tag("<mapping>")],
    Discriminator(name_or_mapping),
    AfterValidator(_name_alone),
]
"""A name, or a mapping where more than the name is said."""


class ShortPipeline(Strict):
    """How micro-batches pass the stages. ``micro_batch`` in sequences, ``virtual_stages`` per pp rank."""

    schedule: NamedSchedule = "1f1b"
    micro_batch: Degree = 1
    virtual_stages: Degree = 1

    @property
    def schedule_in_full(self) -> Schedule:
        """The schedule as the long form has it."""
        return Schedule(name=self.schedule) if isinstance(self.schedule, str) else self.schedule

    @property
    def choice(self) -> ScheduleChoice:
        """The schedule with its knobs."""
        return self.schedule_in_full.choice


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
