"""The long form of a plan, read by floors 2 and above. Every key of the plan language has its type here.

What no part of the house supports yet is parsed and then refused by name (``plans/rules/not_in_this_release.py``);
so an older file never changes its meaning when support grows.
"""

from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag

from meshwright.plans.context_parallel import Context, NamedContext, context_in_full
from meshwright.plans.files.strict_types import Strict, name_or_list
from meshwright.plans.forms.dtypes import Dtypes
from meshwright.plans.forms.host_offload import HostShares, Offload
from meshwright.plans.forms.short import (
    Axis,
    Degree,
    ExpertOrder,
    Gather,
    NodeOrder,
    Recompute,
    Schedule,
    ShardingName,
    Version,
    WorkloadSpec,
)
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.schedules.activation_offload import OffloadRule
from meshwright.schedules.choice import ScheduleChoice, stage_chains, stage_placement
from meshwright.schedules.vocabulary import DEFAULT_FORM

ExpertAxis = Literal["etp", "ep", "edp_shard", "edp_replicate", "pp"]
ShardAxis = Literal["cp", "dp_shard", "dp_replicate"]
VocabularyAxis = Literal["pp", "tp"]
SPREAD: tuple[VocabularyAxis, ...] = ("pp", "tp")
"""The axes of a vocabulary that every pipeline rank has a part of."""


def _layer_key(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


LayerKey = Annotated[str, BeforeValidator(_layer_key)]
"""``embed``, ``head``, ``0..57`` or ``5``; a lone number need not be quoted in a file."""

Stages = Annotated[
    Annotated[Literal["balanced"], Tag("<name>")]
    | Annotated[tuple[tuple[LayerKey, ...], ...], Field(min_length=1), Tag("<list>")],
    Discriminator(name_or_list),
]
StateShare = Annotated[
    Annotated[Literal["even"], Tag("<name>")] | Annotated[tuple[int, ...], Tag("<list>")],
    Discriminator(name_or_list),
]

DEFAULT_EXPERT_ORDER: tuple[ExpertAxis, ...] = ("etp", "ep", "edp_shard", "edp_replicate", "pp")


class DeviceGroup(Strict):
    """A named set of devices, e.g. ``h100[0:256]``; ``*`` is all of them."""

    devices: str = "*"


class Grid(Strict):
    """Degrees of the attention mesh inside one pipeline rank."""

    dp_replicate: Degree = 1
    dp_shard: Degree = 1
    cp: Degree = 1
    tp: Degree = 1


class ExpertGrid(Strict):
    """The experts' mesh over the same ranks: ep·etp·edp_shard·edp_replicate = dp_replicate·dp_shard·cp·tp."""

    ep: Degree = 1
    etp: Degree = 1
    edp_shard: Degree = 1
    edp_replicate: Degree = 1
    order: tuple[ExpertAxis, ...] = DEFAULT_EXPERT_ORDER


class States(Strict):
    """Over which axes each kind of state is sharded; zero1 to zero3 are names for the usual ones."""

    parameter: tuple[ShardAxis, ...] = ()
    gradient: tuple[ShardAxis, ...] = ()
    optimizer: tuple[ShardAxis, ...] = ()


class Layout(Strict):
    """The device mesh of one group. ``order``: fastest varying axis first; ``node_order``: nodes as they are filled.

    ``expert_order``: experts as ranks hold them, a row for each routed layer or one for all.
    ``context`` is the form of context parallelism; None: a ring. ``states`` and ``gather`` are those of the blocks of
    this layout; None: the plan's. ``batch_share``: each replica's sequences of a micro-batch, dp_replicate outermost;
    None: all have equally many. ``state_share``: weights of the ranks that share states, or ``even``.
    """

    on: str = "all"
    grid: Grid = Grid()
    order: tuple[Axis, ...]
    node_order: Annotated[NodeOrder, Field(min_length=1)] | None = None
    expert_order: ExpertOrder | None = None
    experts: ExpertGrid | None = None
    sequence_parallel: bool = False
    batch_share: tuple[int, ...] | None = None
    state_share: StateShare | None = None
    context: NamedContext | None = None
    states: States | None = None
    gather: Gather | None = None

    @property
    def context_in_full(self) -> Context:
        """Return the form of context parallelism in full."""
        return context_in_full(self.context)


class LayerRule(Strict):
    """Layout and recomputation of a range of layers (``0..57``), of ``embed`` or of ``head``. First match wins."""

    layout: str
    recompute: Recompute = "none"
    vocabulary: tuple[VocabularyAxis, ...] | None = None


class Pipeline(Strict):
    """``placement[i]`` is the pipeline rank of stage i; ``stages`` lists what each holds, or ``balanced``."""

    stages: Stages = "balanced"
    placement: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]
    micro_batch: Degree = 1
    schedule: Schedule

    @property
    def ranks(self) -> int:
        """Number of pipeline ranks (pp)."""
        return max(self.placement) + 1

    @property
    def virtual_stages(self) -> int:
        """Stages per pipeline rank where all ranks have equally many."""
        return len(self.placement) // self.ranks

    @property
    def chains(self) -> int:
        """Count the chains of stages, each with all layers."""
        return stage_chains(self.schedule.choice)

    @property
    def usual(self) -> bool:
        """Return true if the stages have the schedule's default placement, equally many on every rank."""
        ranks, count = self.ranks, len(self.placement)
        even = count >= ranks and count % ranks == 0
        return even and self.placement == stage_placement(self.schedule.choice, ranks, count // ranks)


class SequencePolicy(Strict):
    """Per-batch decisions on long sequences; replaces cp."""

    policy: str
    capacity_tokens: Annotated[int, Field(ge=1)]


class Call(Strict):
    """One function call of a post-training graph or a serving pool."""

    does: Literal["train", "serve", "score"]
    layout: str
    weights: str | None = None
    replicas: Annotated[int, Field(ge=1)] = 1


class CallEdge(Strict):
    """Data that one call passes to another. ``from`` is a Python keyword, hence the alias."""

    source: Annotated[str, Field(alias="from")]
    to: str
    carry: str
    every: Annotated[int, Field(ge=1)] = 1
    staleness: Annotated[int, Field(ge=0)] = 0


class LongPlan(Strict):
    """A plan in full. ``gather`` says when sharded parameters are gathered."""

    plan: Version
    model: str
    cluster: str
    workload: WorkloadSpec
    stack: str
    groups: dict[str, DeviceGroup] = Field(default_factory=lambda: {"all": DeviceGroup()})
    layouts: Annotated[dict[str, Layout], Field(min_length=1)]
    states: States = States()
    gather: Gather = "per-layer"
    layers: dict[str, LayerRule]
    pipeline: Pipeline
    offload: Offload | None = None
    dtypes: Dtypes | None = None
    sequence: SequencePolicy | None = None
    synchronise: tuple[Synchronisation, ...] = ()
    calls: dict[str, Call] | None = None
    edges: tuple[CallEdge, ...] = ()

    @property
    def choice(self) -> ScheduleChoice:
        """The schedule with its knobs, and the form of the vocabulary where embedding and head are spread."""
        ends = [self.layers.get(name) for name in ("embed", "head")]
        spread = all(rule is not None and rule.vocabulary == SPREAD for rule in ends)
        form = self.pipeline.schedule.vocabulary or DEFAULT_FORM
        return replace(self.pipeline.schedule.choice, vocabulary=form if spread else None)

    @property
    def written_types(self) -> dict[str, str]:
        """Return the element types of states that the plan writes, by key of ``dtypes``."""
        return self.dtypes.written if self.dtypes else {}

    @property
    def in_chunks(self) -> bool:
        """All model states are in chunks that move between device and host."""
        return self.offload is not None and self.offload.manager is not None

    @property
    def offload_rule(self) -> OffloadRule:
        """Return the offload rule: the offloaded activations, and when they come back."""
        return (self.offload or Offload()).rule

    @property
    def host_shares(self) -> HostShares:
        """Return the shares of a rank's own states that are on its host."""
        return self.offload.shares if self.offload else HostShares()

    @property
    def sharding(self) -> ShardingName:
        """The nearest ZeRO name of ``states``."""
        if self.states.parameter:
            return "zero3"
        if self.states.gradient:
            return "zero2"
        return "zero1" if self.states.optimizer else "none"


NOT_YET = "is part of the plan language and not supported yet"
LATER = ("sequence", "calls", "edges")
"""Keys of the plan language of which this release supports no value but the default."""
