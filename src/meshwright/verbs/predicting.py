"""Predict a legal plan: by closed forms where they know its shape, by playing the lowered Program otherwise."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from meshwright.cost.predict import Estimate, closed_form, report
from meshwright.errors import InputError, Problem
from meshwright.plan.expand import shorten_but_layers
from meshwright.plan.long import LongPlan
from meshwright.plan.recomputing import layer_recomputes, told
from meshwright.plan.resolve import Resolved
from meshwright.plan.setting import Setting
from meshwright.plan.short import ShortPlan
from meshwright.result import Report
from meshwright.units import format_bytes, format_seconds

MAX_PASSES = 2**18
LITTLE = 0.02
"""A part of a device's memory that nobody recomputes for."""


def predicted(resolved: Resolved) -> Report:
    """The Report of a plan, with what is doubtful about it.

    Raises InputError where only playing it would tell, and that would take minutes.
    """
    return reported(resolved, estimated(resolved))


def reported(resolved: Resolved, estimate: Estimate) -> Report:
    """The Report of a plan that was estimated."""
    found, short = report(resolved.long, estimate, resolved.setting), formed(resolved)
    spared: Iterable[Problem] = ()
    if short is not None:
        spared = useless_recomputation(short, resolved.long, resolved.setting, found)
    slow = () if short is None else slow_links(short, resolved.long, resolved.setting)
    return replace(found, remarks=(*doubts(resolved), *map(str, spared), *slow))


def slow_links(short: ShortPlan, plan: LongPlan, setting: Setting) -> Iterator[str]:
    """Which links a plan waits for, in words; nothing where no node is told from another."""
    if setting.cluster.links is None and short.layout.node_order is None:
        return
    from meshwright.verbs.slow_links import placement_task, waiting

    task = placement_task(short, plan, setting)
    if task is not None:
        order = short.layout.node_order or tuple(range(task.places))
        yield from map(str, waiting(task, order, setting.cluster))


def useless_recomputation(
    short: ShortPlan, plan: LongPlan, setting: Setting, found: Report
) -> Iterator[Problem]:
    """A warning where recomputation under split backward passes takes time and spares next to no memory.

    What I has computed again is kept till W. A schedule that puts W off then holds as much of it as without. ``short``
    is the plan but for its stages and for what each layer recomputes.
    """
    choice, recomputes = short.pipeline.choice, layer_recomputes(plan, setting.model.architecture.layers)
    if set(recomputes) == {"none"} or not choice.kind.split:
        return
    without = short.model_copy(update={"recompute": "none"})
    estimate = closed_form(without, setting, plan.pipeline.stages)
    held = max(sum(ledger.values()) for ledger in estimate.ledgers)
    if held > (1 + LITTLE) * found.memory_bytes["total"]:
        return
    longer = format_seconds(found.step_time_s - sum(estimate.parts.values()))
    rule = (
        f"takes {longer} more and spares next to nothing: {format_bytes(found.memory_bytes['total'])}, and "
        f"{format_bytes(held)} without it, for {choice.name} keeps what I computes again till W"
    )
    yield Problem("recompute", told(recomputes), rule, "recompute: none", "warning")


def estimated(resolved: Resolved) -> Estimate:
    """What a plan comes to. Raises InputError as ``predicted`` does."""
    short, long, setting = formed(resolved), resolved.long, resolved.setting
    if short is not None:
        recomputes = layer_recomputes(long, setting.model.architecture.layers)
        return closed_form(short, setting, long.pipeline.stages, recomputes)
    from meshwright.simulate.predict import simulated

    check_playable(resolved)
    return simulated(long, setting)


def formed(resolved: Resolved) -> ShortPlan | None:
    """The short form, but for its stages and what each layer recomputes, of a plan that closed forms know.

    None for one that must be simulated.
    """
    return resolved.short or shorten_but_layers(resolved.long)


def doubts(*resolved: Resolved) -> tuple[str, ...]:
    """What the check of a legal plan, or of several forms of one, warns of; each once."""
    return tuple(dict.fromkeys(str(problem) for one in resolved for problem in one.warnings))


def expected_time(resolved: Resolved) -> list[str]:
    """The predicted time of a step in a sentence, told before it is run; nothing where only playing it would tell."""
    try:
        found = predicted(resolved)
    except InputError:
        return []
    cluster = resolved.setting.cluster.name
    return [f"Predicted: {format_seconds(found.step_time_s)} per step on {cluster}."]


def check_playable(resolved: Resolved) -> None:
    """Refuse to play a step that would take minutes and gigabytes."""
    pipeline, workload = resolved.long.pipeline, resolved.setting.workload
    (layout,) = resolved.long.layouts.values()
    replicas = layout.grid.dp_replicate * layout.grid.dp_shard
    micro_batches = workload.global_batch // (replicas * pipeline.micro_batch)
    passes = 2 * micro_batches * len(pipeline.placement)
    if passes > MAX_PASSES:
        stages = len(pipeline.placement)
        rule = f"playing {micro_batches} micro-batches on {stages} stages is {passes} passes > {MAX_PASSES}"
        hint = f"global_batch: {workload.global_batch * MAX_PASSES // passes} or less"
        raise InputError(Problem("workload.global_batch", workload.global_batch, rule, hint))
