"""Many short plans at once: one integer array per degree, one code array per choice (struct of arrays).

What all plans of an array share (model, cluster, workload, stack) is not in it, or is one value of it: what each stage
holds, what each layer recomputes (None: all of them as ``recompute`` says), and which nodes ranks lie on (None: as the
cluster lists them), or in its place what the links make of their groups, and in which order ranks hold experts. Codes
are those of ``plans/arrays/coded_choices.py``.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.coded_choices import CODED, NUMBERS, with_paths, without_defaults
from meshwright.plans.context_parallel import USUAL, Context
from meshwright.plans.forms.long import Stages
from meshwright.plans.forms.short import (
    DEFAULT_RANK_ORDER,
    Axis,
    ExpertOrder,
    NodeOrder,
    Offload,
    Recompute,
    ShortPlan,
)
from meshwright.schedules.activation_offload import OffloadRule
from meshwright.schedules.choice import ScheduleChoice

Ints = NDArray[np.int64]
COLUMNS: tuple[str, ...] = (*NUMBERS, *CODED)


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
    gather: Ints
    offload: Ints
    context: Ints
    sequence_parallel: NDArray[np.bool_]
    schedules: tuple[ScheduleChoice, ...]
    recomputes: tuple[Recompute, ...]
    rank_orders: tuple[tuple[Axis, ...], ...] = (DEFAULT_RANK_ORDER,)
    offloads: tuple[Offload, ...] = (Offload(),)
    contexts: tuple[Context, ...] = (USUAL,)
    stages: Stages = "balanced"
    layer_recomputes: tuple[Recompute, ...] | None = None
    node_order: NodeOrder | None = None
    slowdowns: Mapping[Hashable, float] | None = None
    expert_order: ExpertOrder | None = None

    @property
    def rank_order(self) -> tuple[Axis, ...]:
        """The order of plans that have the same one."""
        return self.rank_orders[int(self.order[0]) if len(self) else 0]

    @property
    def tp_and_cp_inner(self) -> bool:
        """Ranks of tp and cp lie together in every order."""
        return all(set(order[:2]) == {"tp", "cp"} for order in self.rank_orders)

    @property
    def vocabulary_ranks(self) -> Ints:
        """Pipeline ranks over which every plan spreads its vocabulary; 1 where it lies at the ends."""
        spread = np.array([choice.form is not None for choice in self.schedules])
        return np.where(spread[self.schedule], self.pp, 1)

    @property
    def some_offload(self) -> bool:
        """Any of the plans may have activations on the hosts."""
        return any(value.rule.share for value in self.offloads)

    @property
    def leaves_devices(self) -> NDArray[np.bool_]:
        """Plans that have activations on the hosts."""
        return np.array([value.rule.share > 0 for value in self.offloads], dtype=np.bool_)[self.offload]

    @property
    def offload_rule(self) -> OffloadRule:
        """Return the offload rule of plans that share one: the activations, and when they come back."""
        return self.offloads[int(self.offload[0]) if len(self) else 0].rule

    def __len__(self) -> int:
        return len(self.pp)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> "PlanArrays":
        """Return the plans at ``rows`` (indices or a mask)."""
        picked = {name: getattr(self, name)[rows] for name in COLUMNS}
        return replace(self, **picked)

    def micro_batches(self, global_batch: int) -> Ints:
        """Micro-batches per step of every plan."""
        return global_batch // (self.dp_replicate * self.dp_shard * self.micro_batch)

    def values_of(self, column: str) -> tuple[Any, ...]:
        """Return the values of a column's codes."""
        choice = CODED[column]
        return choice.known or getattr(self, choice.table)

    def short(self, row: int, header: ShortPlan) -> ShortPlan:
        """One plan; what the arrays do not hold comes from ``header``."""
        number = {name: int(getattr(self, name)[row]) for name in COLUMNS}
        said: dict[str, object] = {path: number[name] for name, path in NUMBERS.items()}
        said |= {
            choice.path: choice.written(self.values_of(name)[number[name]]) for name, choice in CODED.items()
        }
        said |= {"layout.node_order": self.node_order, "layout.expert_order": self.expert_order}
        return without_defaults(with_paths(header, said))


def usual_codes(count: int) -> dict[str, Any]:
    """Return the columns of all coded choices for so many plans, each with its first value."""
    return {name: np.zeros(count, dtype=_type_of(name)) for name in CODED}


def _type_of(column: str) -> type[np.int64 | np.bool_]:
    return np.bool_ if CODED[column].known == (False, True) else np.int64


def from_shorts(plans: list[ShortPlan]) -> PlanArrays:
    """Arrays of plans that share everything the arrays do not hold."""
    columns: dict[str, Any] = {
        name: np.array([attrgetter(path)(plan) for plan in plans], dtype=np.int64)
        for name, path in NUMBERS.items()
    }
    whole = np.array([p.sharding == "none" for p in plans])
    columns["dp_replicate"] = np.where(
        whole, columns["dp_replicate"] * columns["dp_shard"], columns["dp_replicate"]
    )
    columns["dp_shard"] = np.where(whole, 1, columns["dp_shard"])
    tables: dict[str, Any] = {}
    for name, choice in CODED.items():
        own = [choice.of(plan) for plan in plans]
        values = choice.known or tuple(dict.fromkeys(own))
        columns[name] = np.array([values.index(value) for value in own], dtype=_type_of(name))
        tables |= {choice.table: values} if choice.table else {}
    return PlanArrays(
        **columns,
        **tables,
        node_order=plans[0].layout.node_order,
        expert_order=plans[0].layout.expert_order,
    )
