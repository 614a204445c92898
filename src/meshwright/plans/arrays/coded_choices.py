"""Choices of a plan that arrays hold as codes: where a plan writes each of them, what codes mean, what people may say.

A code is an index into the values of its choice: ``known`` ones, or those that every array has in its field ``table``;
of these the first is the usual one. Whoever reads plans, searches them, or asks for them reads this table. A new choice
is a line here, with its column and table in ``PlanArrays``; where a search varies it, a line in
``search/space/choices.py``.
"""

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any, get_args

from meshwright.plans.context_parallel import Context, parse_context, shortest
from meshwright.plans.forms.short import (
    DEFAULT_RANK_ORDER,
    Gather,
    Offload,
    RecomputeName,
    RecomputeOperator,
    Schedule,
    ShardingName,
    ShortPlan,
    default_gather,
    schedule_spelling,
)
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.generators import SCHEDULES

SHARDINGS: tuple[ShardingName, ...] = ("none", "zero1", "zero2", "zero3")
NEVER = "never"
"""When parameters are gathered that are not cut, or not by a plan's own words."""
GATHERS: tuple[str, ...] = (NEVER, *get_args(Gather))
RECOMPUTES: tuple[RecomputeName, ...] = get_args(RecomputeName)


@dataclass(frozen=True, kw_only=True)
class CodedChoice:
    """A choice in ``column`` of arrays and at ``path`` of a plan file.

    ``names`` are values by the words that stand for them, beside those of ``known``; a list may be said of some
    ``listed`` words, in their order, or of all of them in any order where a value is an ``order``; ``parse`` reads
    other texts such as ``example``, and raises a ValueError that says what they must be.
    Plans with the value ``nothing`` have no such choice. ``read`` and ``write`` turn what a short plan has at its path
    into a value and back.
    """

    column: str
    path: str
    table: str = ""
    known: tuple[Hashable, ...] = ()
    names: tuple[str, ...] = ()
    listed: tuple[str, ...] = ()
    order: bool = False
    nothing: Hashable = None
    parse: Callable[[str], Hashable] | None = None
    example: str = ""
    read: Callable[[ShortPlan], Hashable] | None = None
    write: Callable[[Any], object] | None = None

    @property
    def name(self) -> str:
        """Return the choice's name for users."""
        return self.path.rpartition(".")[2]

    @cached_property
    def words(self) -> Mapping[str, Hashable]:
        """Values by the single words that stand for them."""
        return {format_choice(value): value for value in self.known} | {name: name for name in self.names}

    def of(self, plan: ShortPlan) -> Hashable:
        """Return the value that a plan has."""
        return self.read(plan) if self.read else attrgetter(self.path)(plan)

    def written(self, value: object) -> object:
        """Return the value as a plan holds it at the path."""
        return self.write(value) if self.write else value


def _cuts_sequences(plan: ShortPlan) -> bool:
    said = plan.layout.sequence_parallel
    return plan.layout.tp > 1 if said is None else said


def _gather(plan: ShortPlan) -> str:
    """Return the gather time of a plan that shards its parameters."""
    if plan.sharding != "zero3":
        return NEVER
    return plan.gather or default_gather(plan.sharding, plan.layout.pp)


def _offload(text: str) -> Offload:
    """A share, as plans write it, and with a comma how many passes ahead. Raises ValueError."""
    share, comma, ahead = text.partition(",")
    try:
        said: dict[str, object] = {"activations": share if share in ("none", "all") else float(share)}
        return Offload.model_validate(said | ({"ahead": int(ahead)} if comma else {}))
    except ValueError:
        raise ValueError(
            "must be none, all or a share up to 1, with a comma how many passes ahead it comes back"
        ) from None


def _schedule(choice: ScheduleChoice) -> object:
    return schedule_spelling(Schedule.of(choice))


CODED: Mapping[str, CodedChoice] = {
    choice.column: choice
    for choice in (
        CodedChoice(column="sharding", path="sharding", known=SHARDINGS),
        CodedChoice(
            column="recompute",
            path="recompute",
            table="recomputes",
            names=RECOMPUTES,
            listed=get_args(RecomputeOperator),
        ),
        CodedChoice(
            column="schedule",
            path="pipeline.schedule",
            table="schedules",
            names=tuple(SCHEDULES),
            read=attrgetter("pipeline.choice"),
            write=_schedule,
        ),
        CodedChoice(
            column="sequence_parallel",
            path="layout.sequence_parallel",
            known=(False, True),
            read=_cuts_sequences,
        ),
        CodedChoice(
            column="context",
            path="layout.context",
            table="contexts",
            parse=parse_context,
            example="ulysses",
            read=attrgetter("layout.context_in_full"),
            write=shortest,
        ),
        CodedChoice(
            column="order",
            path="layout.rank_order",
            table="rank_orders",
            listed=DEFAULT_RANK_ORDER,
            order=True,
        ),
        CodedChoice(
            column="gather",
            path="gather",
            known=GATHERS,
            nothing=NEVER,
            read=_gather,
            write=lambda value: None if value == NEVER else value,
        ),
        CodedChoice(
            column="offload",
            path="offload",
            table="offloads",
            parse=_offload,
            example="0.5",
            write=lambda value: None if value == Offload() else value,
            read=lambda plan: plan.offload or Offload(),
        ),
    )
}
"""By column, in the order in which reasons are told."""
NUMBERS: Mapping[str, str] = {
    **{axis: f"layout.{axis}" for axis in ("pp", "tp", "cp", "dp_replicate", "dp_shard", "ep", "etp")},
    **{name: f"pipeline.{name}" for name in ("micro_batch", "virtual_stages")},
}
"""Columns of numbers, with their paths in a plan file."""


def with_paths(plan: ShortPlan, values: Mapping[str, object]) -> ShortPlan:
    """Return a plan with these values at these paths of its file."""
    inner: dict[str, dict[str, object]] = {}
    for path, value in values.items():
        section, _, key = path.rpartition(".")
        inner.setdefault(section, {})[key] = value
    update = inner.pop("", {})
    update |= {section: getattr(plan, section).model_copy(update=said) for section, said in inner.items()}
    return plan.model_copy(update=update)


def without_defaults(plan: ShortPlan) -> ShortPlan:
    """Return the plan without fields that equal their default, or that say nothing because cp = 1."""
    update: dict[str, object] = {}
    if plan.gather == default_gather(plan.sharding, plan.layout.pp):
        update["gather"] = None
    if plan.layout.cp == 1 and plan.layout.context is not None:
        update["layout"] = plan.layout.model_copy(update={"context": None})
    return plan.model_copy(update=update) if update else plan


def format_choice(value: object) -> str:
    """Format a choice as users write it."""
    if isinstance(value, Offload):
        return f"{value.activations}" + (f",{value.ahead}" if value.ahead > 1 else "")
    if isinstance(value, Context):
        return value.word
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
