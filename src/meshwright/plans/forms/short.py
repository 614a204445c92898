"""The short form of a plan: one layout for everything. Sugar for the long form (``plans/forms/conversion.py``).

The product pp·dp_replicate·dp_shard·cp·tp is the number of devices.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Discriminator, Field, Tag, model_validator

from meshwright.plans.context_parallel import Context, NamedContext, context_in_full
from meshwright.plans.files.strict_types import (
    Strict,
    name_number_list_or_mapping,
    name_or_list,
    name_or_mapping,
    number_or_list,
    number_or_mapping,
)
from meshwright.plans.forms.dtypes import Dtypes
from meshwright.plans.forms.host_offload import Offload
from meshwright.plans.forms.spellings import (
    RECOMPUTES,
    SHARDINGS,
    precision_in_our_words,
    stack_in_our_words,
    translated,
)
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.schedules.choice import ScheduleChoice, StepValidation
from meshwright.schedules.custom.custom_schedule import CustomSchedule
from meshwright.workload.adapter import DEFAULT_RANK, LORA, Adapter
from meshwright.workload.expert_capacity import CapacityScope, DropPolicy
from meshwright.workload.images import Images
from meshwright.workload.optimizer_choice import DEFAULT_OPTIMIZER, Optimizer

MAX_DEGREE = 2**20
NamedStack = Annotated[str, BeforeValidator(stack_in_our_words)]
Version = Annotated[int, Field(ge=1, le=1)]
Degree = Annotated[int, Field(ge=1, le=MAX_DEGREE)]
Axis = Literal["tp", "cp", "dp_shard", "dp_replicate", "pp"]
ExpertOrder = Annotated[
    Annotated[str, Tag("<name>")]
    | Annotated[tuple[tuple[Annotated[int, Field(ge=0)], ...], ...], Field(min_length=1), Tag("<list>")],
    Discriminator(name_or_list),
]
"""The experts of each routed layer, or of all of them, as ranks hold them; a file of such rows until it is read."""
NodeOrder = tuple[Annotated[int, Field(ge=0, le=MAX_DEGREE)], ...]
ShardingName = Literal["none", "zero1", "zero2", "zero3"]
NamedSharding = Annotated[ShardingName, translated(SHARDINGS)]
Gather = Literal["per-layer", "per-micro-batch", "per-unit", "per-step"]
RecomputeName = Literal["none", "selective", "full"]
RecomputeOperator = Literal[
    "core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj", "shared_experts"
]
Recompute = Annotated[
    Annotated[RecomputeName, translated(RECOMPUTES), Tag("<name>")]
    | Annotated[tuple[RecomputeOperator, ...], Field(min_length=1), Tag("<list>")],
    Discriminator(name_or_list),
]

Lengths = Annotated[
    Annotated[int, Tag("<number>")] | Annotated[tuple[int, ...], Tag("<list>")],
    Discriminator(number_or_list),
]
"""One length, or several in turn."""


class RoutingFile(Strict):
    """A CSV file of pairs (``workload/expert_counts_file.py``), and the digest of what it says, which a plan may state.

    The numbers are filled in when it is read (``plans/files/expert_pairs_file.py``), and never written.
    """

    pairs: str
    sha256: str | None = None
    experts: Annotated[int, Field(ge=1)] | None = None
    values: bytes | None = None

    def to_data(self) -> dict[str, object]:
        """As a plan writes it."""
        data = super().to_data()
        return {key: data[key] for key in ("pairs", "sha256") if key in data}


ExpertCounts = tuple[Annotated[tuple[float, ...], Field(min_length=1)], ...]
RoutingSpec = Annotated[
    Annotated[Literal["balanced"], Tag("<name>")]
    | Annotated[float, Tag("<number>")]
    | Annotated[ExpertCounts, Field(min_length=1), Tag("<list>")]
    | Annotated[RoutingFile, Tag("<mapping>")],
    Discriminator(name_number_list_or_mapping),
]
"""How unevenly tokens choose experts: a name, Zipf's exponent, or what was counted."""


class CapacitySpec(Strict):
    """The number of tokens that an expert takes, and the drop policy (``workload/expert_capacity.py``)."""

    factor: float
    drop: DropPolicy = "probs"
    scope: CapacityScope = "rank"
    pad: bool = False


def capacity_spec(value: "float | CapacitySpec") -> "float | CapacitySpec":
    """Return the factor alone where no other field is set."""
    if isinstance(value, CapacitySpec) and value == CapacitySpec(factor=value.factor):
        return value.factor
    return value


NamedCapacity = Annotated[
    Annotated[float, Tag("<number>")] | Annotated[CapacitySpec, Tag("<mapping>")],
    Discriminator(number_or_mapping),
    AfterValidator(capacity_spec),
]
"""A factor, or a mapping where more is said."""

DEFAULT_RANK_ORDER: tuple[Axis, ...] = ("tp", "cp", "dp_shard", "dp_replicate", "pp")


class OptimizerSpec(Strict):
    """An optimizer with options; which of them it has, and their values: ``workload/optimizers``."""

    name: str
    omega: tuple[float, ...] | None = None
    betas: tuple[float, ...] | None = None
    epsilon: float | None = None
    weight_decay: float | None = None
    momentum: float | None = None
    nesterov: bool | None = None
    steps: int | None = None
    scale: str | None = None
    tensor: str | None = None
    others: str | None = None
    perturbations: str | None = None

    @property
    def optimizer(self) -> Optimizer:
        """The optimizer that the workload has."""
        return Optimizer(
            self.name, tuple((k, v) for k, v in self.model_dump(exclude_none=True).items() if k != "name")
        )


def optimizer_spelling(value: "str | OptimizerSpec") -> "str | OptimizerSpec":
    """Return an optimizer by its name where no option is written."""
    if isinstance(value, OptimizerSpec) and value == OptimizerSpec(name=value.name):
        return value.name
    return value


NamedOptimizer = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[OptimizerSpec, Tag("<mapping>")],
    Discriminator(name_or_mapping),
    AfterValidator(optimizer_spelling),
]
"""A name, or a mapping where options are written."""


class AdapterSpec(Strict):
    """Adapters as a plan file writes them; their rules: ``workload/adapter.py``."""

    form: str = LORA
    rank: int = DEFAULT_RANK
    alpha: float | None = None
    targets: tuple[str, ...] | None = None
    base: str | None = None

    @property
    def adapter(self) -> Adapter:
        """The adapters of the workload."""
        return Adapter(**self.model_dump())


class ImagesSpec(Strict):
    """Images of each sequence as a plan file writes them (``workload/images.py``); ``tokens`` are patches of one."""

    per_sequence: int
    tokens: int

    @property
    def images(self) -> Images:
        """The images of the workload."""
        return Images(self.per_sequence, self.tokens)


class WorkloadSpec(Strict):
    """The workload as a plan file writes it; ``workload/workload.py`` holds its rules.

    ``documents``: sequences are packed with documents of these lengths, which do not attend to each other; None: each
    sequence is one. ``routing``: how unevenly tokens choose experts (``workload/expert_routing.py``); None: as in
    the runs that constants were fitted to. ``capacity``: how many tokens an expert takes; None: all that chose it.
    ``fp8_recipe``: how the scales of 8-bit numbers are found (``workload/fp8_recipe.py``); None: as the stack does.
    A precision in others' words says its recipe too: ``fp8-cs``. ``adapter``: what task ``lora`` trains.
    ``encoder_tokens``: the length of the text that an encoder reads; ``images``: those that a sequence begins with.
    """

    task: str = "pretrain"
    seq_len: int
    global_batch: int
    precision: str = "bf16"
    optimizer: NamedOptimizer = DEFAULT_OPTIMIZER
    documents: Lengths | None = None
    routing: RoutingSpec | None = None
    capacity: NamedCapacity | None = None
    fp8_recipe: str | None = None
    adapter: AdapterSpec | None = None
    encoder_tokens: int | None = None
    images: ImagesSpec | None = None

    @property
    def optimizer_in_full(self) -> Optimizer:
        """The optimizer with the options that are written."""
        return Optimizer(self.optimizer) if isinstance(self.optimizer, str) else self.optimizer.optimizer

    @model_validator(mode="before")
    @classmethod
    def _in_our_words(cls, data: Any) -> Any:
        return precision_in_our_words(data) if isinstance(data, Mapping) else data


class ShortLayout(Strict):
    """Degrees of parallelism. ``sequence_parallel`` None means: on when tp > 1.

    ``rank_order`` lists the axes from fastest to slowest varying rank, ``node_order`` the cluster's nodes in the order
    in which ranks fill them; None: as the cluster has them. ``expert_order`` lists the experts in the order in which
    the ranks of ep hold them, equally many each; None: as the model has them. ``context`` is the form of context
    parallelism; None: a ring.
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
    node_order: Annotated[NodeOrder, Field(min_length=1)] | None = None
    expert_order: ExpertOrder | None = None
    context: NamedContext | None = None

    @property
    def context_in_full(self) -> Context:
        """Return the form of context parallelism in full."""
        return context_in_full(self.context)


class Schedule(Strict):
    """A schedule by name, with the knobs that are turned, or lists that somebody wrote.

    ``file`` is a CSV file with a line for each pipeline rank; its ``lists`` are filled in when it is read
    (``plans/files/custom_schedule_file.py``), with its digest, which a plan may state. Lists may stand for
    themselves, too. ``memory_limit``: the most that a rank may hold, in times of what 1F1B holds on its first rank.
    ``unit``: the micro-batches that go through a rank's stages together. ``in_flight``: the most passes (micro-batch ×
    chunk) whose activations the first pipeline rank holds. ``vocabulary``: the form in which embedding
    and head are spread over the pipeline ranks. ``step_validation``: whether ranks know the norm of all gradients
    before they take their optimizer step, or hear of it afterwards.
    """

    name: str | None = None
    file: str | None = None
    sha256: str | None = None
    lists: Annotated[tuple[str, ...], Field(min_length=1)] | None = None
    memory_limit: Annotated[float, Field(gt=0)] | None = None
    unit: Degree | None = None
    in_flight: Degree | None = None
    vocabulary: str | None = None
    step_validation: StepValidation | None = None

    @classmethod
    def of(cls, choice: ScheduleChoice) -> "Schedule":
        """Return a plan's entry for a schedule choice."""
        written = choice.written
        return cls(
            name=None if written else choice.name,
            file=written.file if written else None,
            sha256=written.sha256 if written and written.file else None,
            lists=written.lines if written else None,
            memory_limit=choice.memory_limit,
            unit=choice.unit,
            in_flight=choice.in_flight,
            vocabulary=choice.vocabulary,
            step_validation=choice.step_validation,
        )

    @property
    def choice(self) -> ScheduleChoice:
        """The name, which the table may not have, or the lists, with the knobs."""
        written = None if self.lists is None else CustomSchedule(self.lists, self.file)
        name = self.name or (written.name if written else self.file) or ""
        knobs = self.memory_limit, self.unit, self.vocabulary
        return ScheduleChoice(name, *knobs, written, self.step_validation, self.in_flight)

    def to_data(self) -> dict[str, object]:
        """As a plan writes it: lists that a file has are not written out."""
        data = super().to_data()
        return {key: value for key, value in data.items() if key != "lists" or self.file is None}


def schedule_spelling(value: "str | Schedule") -> "str | Schedule":
    """Return a schedule by its name where no other field is set."""
    if isinstance(value, Schedule) and value.name is not None and value == Schedule(name=value.name):
        return value.name
    return value


NamedSchedule = Annotated[
    Annotated[str, Tag("<name>")] | Annotated[Schedule, Tag("<mapping>")],
    Discriminator(name_or_mapping),
    AfterValidator(schedule_spelling),
]
"""A name, or a mapping where more than the name is said."""


class ShortPipeline(Strict):
    """Pipeline schedule. ``micro_batch`` in sequences, ``virtual_stages`` per pp rank."""

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
    stack: NamedStack = "megatron-core"
    layout: ShortLayout = ShortLayout()
    sharding: NamedSharding = "none"
    gather: Gather | None = None
    pipeline: ShortPipeline = ShortPipeline()
    recompute: Recompute = "none"
    offload: Offload | None = None
    dtypes: Dtypes | None = None
    synchronise: tuple[Synchronisation, ...] = ()


def default_gather(sharding: ShardingName, pp: int) -> Gather:
    """Return the default gather of sharded parameters."""
    return "per-step" if sharding == "zero3" and pp > 1 else "per-layer"
