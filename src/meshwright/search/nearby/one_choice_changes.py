"""Plans one step away from a short-form plan: each choice changed in each direction, the rest kept.

A factor (the smallest prime of the degree that gives it) moves from one axis of the mesh to another, in every pair;
data parallelism counts as one axis and takes up or gives what ``plans/overrides.py`` moves. With another number of
pipeline ranks the stages per rank are kept, or the stages in all. Experts' degrees, micro-batch and stages per rank
go up and down by a factor; sharding, recomputation, offload, sequence parallelism, vocabulary and schedule take
every other value that the stack has. Whether a step is legal is not asked here, nor what it costs.
"""

from collections.abc import Iterator
from typing import NamedTuple

from meshwright.plans.choices.recompute import RECOMPUTES
from meshwright.plans.forms.short import ShortLayout, ShortPlan
from meshwright.plans.overrides import try_overrides
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.generators import SCHEDULES
from meshwright.search.space.searched_schedules import all_schedules
from meshwright.stack.stack import Stack

DATA = "dp"
AXES = ("tp", "cp", "pp", DATA)
USUAL_CHUNKS = 2
"""Stages per rank of a schedule that wants several, where the plan has one."""


class Step(NamedTuple):
    """``moves`` names what is stepped (``tp up``), ``settings`` how ``--set`` would say it."""

    moves: tuple[str, ...]
    settings: tuple[str, ...]
    plan: ShortPlan


def steps(plan: ShortPlan, devices: int, stack: Stack) -> Iterator[Step]:
    """Every step but those of the schedule, each plan once."""
    usual = with_usual_sequence(plan)
    seen = {usual}
    for moves, settings in (*_mesh(plan), *_chunked(plan), *_degrees(plan), *_values(plan, stack)):
        changed = try_overrides(usual, settings, devices)
        if changed is not None and changed not in seen:
            seen.add(changed)
            yield Step(moves, settings, changed)


def schedule_steps(plan: ShortPlan, devices: int, stack: Stack) -> Iterator[Step]:
    """Yield the plan with every other schedule and knob of the stack, at the same degrees."""
    own = plan.pipeline.choice
    every = all_schedules(stack, [plan.layout.pp]) if plan.layout.pp > 1 else ()
    for choice in (one for one in every if one.vocabulary is None and one.step_validation is None):
        settings = _schedule_settings(choice, plan.pipeline.virtual_stages)
        changed = None if choice == own else try_overrides(plan, settings, devices)
        if changed is not None:
            yield Step(("schedule",), settings, changed)


def _schedule_settings(choice: ScheduleChoice, chunks: int) -> tuple[str, ...]:
    kind = SCHEDULES[choice.name]
    if kind.fixed_chunks is not None:
        chunks = kind.fixed_chunks
    elif not kind.allows(chunks):
        chunks = USUAL_CHUNKS if kind.chunked else 1
    knobs = (f"schedule.{knob}={value:g}" for knob, value in choice.given_knobs.items())
    return (f"schedule={choice.name}", *knobs, f"virtual_stages={chunks}")


def with_usual_sequence(plan: ShortPlan) -> ShortPlan:
    """Sequence parallelism left to its default where the plan has that, so that it follows tp."""
    layout = plan.layout
    if layout.sequence_parallel != (layout.tp > 1):
        return plan
    return plan.model_copy(update={"layout": layout.model_copy(update={"sequence_parallel": None})})


Moves = tuple[tuple[str, ...], tuple[str, ...]]


def _mesh(plan: ShortPlan) -> Iterator[Moves]:
    """Yield moves of a factor from one axis to another, and between the two kinds of data parallelism."""
    layout = plan.layout
    sizes = {axis: getattr(layout, axis) for axis in AXES if axis != DATA}
    sizes[DATA] = layout.dp_replicate * layout.dp_shard
    for giver, taker in ((g, t) for g in AXES for t in AXES if g != t and sizes[g] > 1):
        factor = smallest_factor(sizes[giver])
        after = sizes | {giver: sizes[giver] // factor, taker: sizes[taker] * factor}
        settings = tuple(f"{axis}={after[axis]}" for axis in (giver, taker) if axis != DATA)
        if giver == DATA and plan.sharding != "none" and layout.dp_shard % factor:
            settings += (f"dp_replicate={layout.dp_replicate // factor}",)
        yield (f"{taker} up", f"{giver} down"), settings
    if plan.sharding != "none":
        yield from _data(layout)


def _data(layout: ShortLayout) -> Iterator[Moves]:
    """Yield moves of a factor between the two kinds of data parallelism."""
    if layout.dp_shard > 1:
        more = layout.dp_replicate * smallest_factor(layout.dp_shard)
        yield ("dp_replicate up",), (f"dp_replicate={more}",)
    if layout.dp_replicate > 1:
        fewer = layout.dp_replicate // smallest_factor(layout.dp_replicate)
        yield ("dp_replicate down",), (f"dp_replicate={fewer}",)


def _chunked(plan: ShortPlan) -> Iterator[Moves]:
    """Yield moves of pp that keep the number of stages, and other numbers of stages per rank."""
    chunks, kind = plan.pipeline.virtual_stages, plan.pipeline.choice.kind
    if not kind.chunked or kind.fixed_chunks is not None:
        return
    for moves, settings in _mesh(plan):
        pp = next((int(text.partition("=")[2]) for text in settings if text.startswith("pp=")), None)
        if pp is not None and plan.layout.pp * chunks % pp == 0:
            yield moves, (*settings, f"virtual_stages={plan.layout.pp * chunks // pp}")
    for more in (chunks + 1, 2 * chunks):
        yield ("virtual_stages up",), (f"virtual_stages={more}",)
    for fewer in (chunks - 1, chunks // 2):
        if fewer > 1:
            yield ("virtual_stages down",), (f"virtual_stages={fewer}",)


def _degrees(plan: ShortPlan) -> Iterator[Moves]:
    """Degrees that no other gives way to."""
    layout = plan.layout
    for name, size in (("micro_batch", plan.pipeline.micro_batch), ("ep", layout.ep), ("etp", layout.etp)):
        yield (f"{name} up",), (f"{name}={2 * size}",)
        if size > 1:
            yield (f"{name} down",), (f"{name}={size // smallest_factor(size)}",)


def _values(plan: ShortPlan, stack: Stack) -> Iterator[Moves]:
    """Every other value of what has no degree."""
    choice = plan.pipeline.choice
    yield from (((f"sharding {name}",), (f"sharding={name}",)) for name in stack.shardings)
    for name in RECOMPUTES:
        if name in stack.recomputes:
            yield (f"recompute {name}",), (f"recompute={name}",)
    own = plan.offload.activations if plan.offload else "none"
    for share in ("none", 0.5, "all") if stack.offloads_activations and plan.layout.pp > 1 else ():
        if share != own:
            yield (f"offload {share}",), (f"offload.activations={share}",)
    for state in ("optimizer", "parameters"):
        here = getattr(plan.offload, state, None) or "none"
        for home in ("none", "all") if any(way.has_part(state, 1.0) for way in stack.state_offloads) else ():
            if home != here:
                yield (f"{state} on the host {home}",), (f"offload.{state}={home}",)
    if plan.layout.tp > 1:
        other = "false" if plan.layout.sequence_parallel is not False else "true"
        yield ("sequence_parallel",), (f"sequence_parallel={other}",)
    if plan.layout.pp > 1:
        for form in stack.vocabularies:
            yield (f"vocabulary {form}",), (f"schedule.vocabulary={form}",)
        if choice.vocabulary:
            yield ("vocabulary ends",), (f"schedule={choice.name}",)


def smallest_factor(number: int) -> int:
    """Return the smallest prime that divides a number above 1."""
    return next((n for n in range(2, int(number**0.5) + 1) if number % n == 0), number)
