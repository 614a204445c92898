"""Many short plans at once: one integer array per degree, one code array per choice (struct of arrays).

What all plans of an array share (model, cluster, workload, stack) is not in it, or is one value of it: what each stage
holds, what each layer recomputes (None: all of them as ``recompute`` says), when zero3 gathers (None: as usual), what
the hosts hold, and which nodes ranks lie on (None: as the cluster lists them), or in its place what the links make of
their groups. Codes index the tuples ``SHARDINGS`` and the array's own ``schedules``, ``recomputes`` and
``rank_orders``.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.plan.long import Stages
from meshwright.plan.short import (
    DEFAULT_RANK_ORDER,
    Axis,
    Gather,
    NodeOrder,
    Offload,
    Recompute,
    Schedule,
    ShardingName,
    ShortLayout,
    ShortPipeline,
    ShortPlan,
)
from meshwright.schedule.choice import ScheduleChoice
from meshwright.schedule.offload import OffloadRule

Ints = NDArray[np.int64]
SHARDINGS: tuple[ShardingName, ...] = ("none", "zero1", "zero2", "zero3")


@dataclass(frozen=True, kw_only=True)
class PlanArrays:
    """n plans. Degrees as in a short plan's layout; ``sequence_parallel`` holds bools."""

    pp: Ints
    dp_replicate: Ints
    dp_shard: Ints
    cp: Ints
    tp: Ints
    ep: Ints
    etp: Ints
    micro_batch: Ints
    virtual_stages: Ints
    sharding: Ints
    schedule: Ints
    recompute: Ints
    order: Ints
    sequence_parallel: NDArray[np.bool_]
    schedules: tuple[ScheduleChoice, ...]
    recomputes: tuple[Recompute, ...]
    rank_orders: tuple[tuple[Axis, ...], ...] = (DEFAULT_RANK_ORDER,)
    stages: Stages = "balanced"
    layer_recomputes: tuple[Recompute, ...] | None = None
    gather: Gather | None = None
    offload: Offload | None = None
    node_order: NodeOrder | None = None
    slowdowns: Mapping[Hashable, float] | None = None

    @property
    def rank_order(self) -> tuple[Axis, ...]:
        """The order of plans that have the same one."""
        return self.rank_orders[int(self.order[0]) if len(self) else 0]

    @property
    def vocabulary_ranks(self) -> Ints:
        """Pipeline ranks over which every plan spreads its vocabulary; 1 where it lies at the ends."""
        spread = np.array([choice.form is not None for choice in self.schedules])
        return np.where(spread[self.schedule], self.pp, 1)

    @property
    def offload_rule(self) -> OffloadRule:
        """Which activations of every plan go to the hosts, and when they come back."""
        return (self.offload or Offload()).rule

    def __len__(self) -> int:
        return len(self.pp)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> "PlanArrays":
        """The plans at ``rows`` (indices or a mask)."""
        picked = {name: getattr(self, name)[rows] for name in COLUMNS}
        return replace(self, **picked)

    def micro_batches(self, global_batch: int) -> Ints:
        """Micro-batches per step of every plan."""
        return global_batch // (self.dp_replicate * self.dp_shard * self.micro_batch)

    def short(self, row: int, header: ShortPlan) -> ShortPlan:
        """One plan; what the arrays do not hold comes from ``header``."""
        number = {name: int(getattr(self, name)[row]) for name in COLUMNS}
        degrees = ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep", "etp")
        return header.model_copy(
            update={
                "layout": ShortLayout(
                    **{name: number[name] for name in degrees},
                    sequence_parallel=bool(self.sequence_parallel[row]),
                    rank_order=self.rank_orders[number["order"]],
                    node_order=self.node_order,
                ),
                "sharding": SHARDINGS[number["sharding"]],
                "pipeline": ShortPipeline(
                    schedule=Schedule.of(self.schedules[number["schedule"]]),
                    micro_batch=number["micro_batch"],
                    virtual_stages=number["virtual_stages"],
                ),
                "recompute": self.recomputes[number["recompute"]],
                "gather": self.gather or header.gather,
                "offload": self.offload,
            }
        )


SHARED = ("stages", "layer_recomputes", "gather", "offload", "node_order", "slowdowns")
COLUMNS: tuple[str, ...] = tuple(
    f.name for f in fields(PlanArrays) if f.name not in ("schedules", "recomputes", "rank_orders", *SHARED)
)


def from_shorts(plans: list[ShortPlan]) -> PlanArrays:
    """Arrays of plans that share everything the arrays do not hold."""
    schedules = tuple(dict.fromkeys(p.pipeline.choice for p in plans))
    recomputes = tuple(dict.fromkeys(p.recompute for p in plans))
    orders = tuple(dict.fromkeys(p.layout.rank_order for p in plans))
    degrees = {
        name: np.array([getattr(p.layout, name) for p in plans], dtype=np.int64)
        for name in ("pp", "cp", "tp", "ep", "etp", "dp_replicate", "dp_shard")
    }
    whole = np.array([p.sharding == "none" for p in plans])
    degrees["dp_replicate"] = np.where(
        whole, degrees["dp_replicate"] * degrees["dp_shard"], degrees["dp_replicate"]
    )
    degrees["dp_shard"] = np.where(whole, 1, degrees["dp_shard"])
    sequence = [
        p.layout.tp > 1 if p.layout.sequence_parallel is None else p.layout.sequence_parallel for p in plans
    ]
    return PlanArrays(
        **degrees,  # type: ignore[arg-type]
        micro_batch=np.array([p.pipeline.micro_batch for p in plans], dtype=np.int64),
        virtual_stages=np.array([p.pipeline.virtual_stages for p in plans], dtype=np.int64),
        sharding=np.array([SHARDINGS.index(p.sharding) for p in plans], dtype=np.int64),
        schedule=np.array([schedules.index(p.pipeline.choice) for p in plans], dtype=np.int64),
        recompute=np.array([recomputes.index(p.recompute) for p in plans], dtype=np.int64),
        order=np.array([orders.index(p.layout.rank_order) for p in plans], dtype=np.int64),
        sequence_parallel=np.array(sequence, dtype=np.bool_),
        schedules=schedules,
        recomputes=recomputes,
        rank_orders=orders,
        node_order=plans[0].layout.node_order,
        gather=plans[0].gather,
        offload=plans[0].offload,
    )
