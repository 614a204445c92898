"""Many short plans at once: one integer array per degree, one code array per choice (struct of arrays).

All plans of an array share the rest: model, cluster, workload and stack, which are not in it; what each stage holds;
what each layer recomputes (None: all of them as ``recompute`` says); which nodes ranks lie on (None: as the cluster
lists them), or in its place the slowdown of their groups' links; and in which order ranks hold experts.
"""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.forms.long import Stages
from meshwright.plans.forms.short import ExpertOrder, NodeOrder, Recompute
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.schedules.activation_offload import OffloadRule
from meshwright.schedules.choice import ScheduleChoice

Ints = NDArray[np.int64]
SEQUENCES = "sequences"
"""The column of sequences that a step computes."""


@dataclass(frozen=True, kw_only=True)
class PlanArrays:
    """n plans. Each of the ``columns``, (n,), is an attribute too: ``plans.tp``.

    Columns are the numbers of a short plan, and for each of its choices (``plans/choices``) codes: indices into the
    ``values`` of that column. Codes of true and false are bools. ``several_sizes``: plans fill clusters that differ in
    nothing but their number of ``devices``; otherwise all of them fill the same one. The column ``SEQUENCES`` is there
    where steps of plans compute different numbers of sequences.
    """

    columns: Mapping[str, Ints]
    values: Mapping[str, tuple[Any, ...]]
    several_sizes: bool = False
    stages: Stages = "balanced"
    layer_recomputes: tuple[Recompute, ...] | None = None
    node_order: NodeOrder | None = None
    slowdowns: Mapping[Hashable, float] | None = None
    expert_order: ExpertOrder | None = None
    synchronise: tuple[Synchronisation, ...] = ()

    def __post_init__(self) -> None:
        self.__dict__.update(self.columns)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Ints: ...

    @property
    def schedules(self) -> tuple[ScheduleChoice, ...]:
        """The values of ``schedule``."""
        return self.values["schedule"]

    @property
    def devices(self) -> Ints:
        """Devices that every plan fills."""
        return self.pp * self.tp * self.cp * self.dp_shard * self.dp_replicate

    @property
    def tp_and_cp_inner(self) -> bool:
        """Ranks of tp and cp lie together in every order."""
        return bool(self.tp_and_cp_inner_by_order.all())

    @property
    def tp_and_cp_inner_by_order(self) -> NDArray[np.bool_]:
        """The mask of orders in which ranks of tp and cp lie together."""
        return np.array([set(order[:2]) == {"tp", "cp"} for order in self.values["order"]], dtype=np.bool_)

    @property
    def vocabulary_ranks(self) -> Ints:
        """Pipeline ranks over which every plan spreads its vocabulary; 1 where it lies at the ends."""
        spread = np.array([choice.form is not None for choice in self.schedules])
        return np.where(spread[self.schedule], self.pp, 1)

    @property
    def some_offload(self) -> bool:
        """Any of the plans may have activations on the hosts."""
        return any(value.rule.share for value in self.values["offload"])

    @property
    def leaves_devices(self) -> NDArray[np.bool_]:
        """Plans that have activations on the hosts."""
        return np.array([value.rule.share > 0 for value in self.values["offload"]], dtype=np.bool_)[
            self.offload
        ]

    @property
    def offload_rule(self) -> OffloadRule:
        """Return the offload rule of plans that share one: the activations, and when they come back."""
        rule: OffloadRule = self.values["offload"][int(self.offload[0]) if len(self) else 0].rule
        return rule

    def __len__(self) -> int:
        return len(self.pp)

    def take(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> "PlanArrays":
        """Return the plans at ``rows`` (indices or a mask)."""
        return replace(self, columns={name: column[rows] for name, column in self.columns.items()})

    def with_columns(self, columns: Mapping[str, Ints]) -> "PlanArrays":
        """Return the plans with other numbers or codes in some columns."""
        return replace(self, columns={**self.columns, **columns})

    def with_choice(self, column: str, value: object) -> "PlanArrays":
        """Return the plans with one value of a choice for all of them."""
        plans = self.with_columns({column: np.zeros_like(self.columns[column])})
        return replace(plans, values={**self.values, column: (value,)})

    def micro_batches(self, sequences: int) -> Ints:
        """Micro-batches per step of every plan, if a step computes so many sequences unless a column says others."""
        computed = self.columns.get(SEQUENCES, sequences)
        return computed // (self.dp_replicate * self.dp_shard * self.micro_batch)


def joined_plans(one: PlanArrays, other: PlanArrays) -> PlanArrays:
    """Return the plans of both, with the tables of both for their choices; the rest is as in ``other``."""
    values, columns = dict(other.values), dict[str, Ints]()
    for name, column in one.columns.items():
        codes = column
        if name in values:
            known = list(dict.fromkeys([*values[name], *one.values[name]]))
            values[name] = tuple(known)
            codes = np.array([known.index(value) for value in one.values[name]])[column.astype(np.int64)]
        columns[name] = np.concatenate([codes.astype(other.columns[name].dtype), other.columns[name]])
    return replace(other, columns=columns, values=values)
