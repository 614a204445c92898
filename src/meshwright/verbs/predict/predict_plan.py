"""Predict a legal plan: by closed forms if its shape has them, otherwise by simulating its Program."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from meshwright.cost.plan_report import Estimate, closed_form, report
from meshwright.errors import InputError, Problem
from meshwright.plans.forms.conversion import shorten_ignoring_layers
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.plan_of_layout import micro_batches_of
from meshwright.plans.layers.recompute_by_layer import format_layer_recomputes, layer_recomputes
from meshwright.plans.resolve import Resolved
from meshwright.plans.setting import Setting
from meshwright.result import Report
from meshwright.units import format_bytes, format_seconds
from meshwright.verbs.predict.network_advice import with_network_advice
from meshwright.verbs.predict.run_rates import WITHOUT_RULE

MAX_PASSES = 2**18
LITTLE = 0.02
"""A part of a device's memory that nobody recomputes for."""


def predicted(resolved: Resolved) -> Report:
    """Return the Report of a plan, with its warnings.

    Raises InputError where only playing it would tell, and that would take minutes.
    """
    return reported(resolved, estimated(resolved))


def reported(resolved: Resolved, estimate: Estimate) -> Report:
    """Return the Report of a plan that was estimated."""
    found, short = report(resolved.long, estimate, resolved.setting), closed_form_plan(resolved)
    saved: Iterable[Problem] = ()
    if short is not None:
        saved = useless_recomputation(short, resolved.long, resolved.setting, found)
        found = with_network_advice(found, short, resolved.long, resolved.setting)
    slow = () if short is None else slow_links(short, resolved.long, resolved.setting)
    advice = (found.interval or {}).get("advice")
    given = (*constants_remarks(resolved.setting), *unused_rates(resolved))
    remarks = (*doubts(resolved), *map(str, saved), *slow, *given, *([advice] if advice else []))
    return replace(found, remarks=remarks)


def constants_remarks(setting: Setting) -> tuple[str, ...]:
    """Return the constants that the user gave, in words."""
    return (f"constants {setting.given.text}",) if setting.given else ()


def unused_rates(resolved: Resolved) -> tuple[str, ...]:
    """Return a remark on learning rates that no entry of ``synchronise`` reads."""
    ruled = any(entry.has_rule for entry in resolved.long.synchronise)
    return () if ruled or resolved.setting.rates is None else (WITHOUT_RULE,)


def slow_links(short: ShortPlan, plan: LongPlan, setting: Setting) -> Iterator[str]:
    """Yield the links that a plan waits for, in words; nothing where all nodes are alike."""
    if setting.cluster.links is None and short.layout.node_order is None:
        return
    from meshwright.verbs.predict.slow_links import placement_task, slow_link_effects

    task = placement_task(short, plan, setting)
    if task is not None:
        order = short.layout.node_order or tuple(range(task.places))
        yield from map(str, slow_link_effects(task, order, setting.cluster))


def useless_recomputation(
    short: ShortPlan, plan: LongPlan, setting: Setting, found: Report
) -> Iterator[Problem]:
    """Warn if recomputation under split backward passes takes time and saves next to no memory.

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
    yield Problem("recompute", format_layer_recomputes(recomputes), rule, "recompute: none", "warning")


def estimated(resolved: Resolved) -> Estimate:
    """Estimate a plan. Raise InputError as ``predicted`` does."""
    short, long, setting = closed_form_plan(resolved), resolved.long, resolved.setting
    if short is not None:
        recomputes = layer_recomputes(long, setting.model.architecture.layers)
        return closed_form(short, setting, long.pipeline.stages, recomputes)
    from meshwright.simulate.plan_estimate import simulated_estimate

    check_playable(resolved)
    return simulated_estimate(long, setting)


def closed_form_plan(resolved: Resolved) -> ShortPlan | None:
    """Return the short form of a plan with closed forms, without its stages and recomputation by layer.

    None for one that must be simulated.
    """
    if resolved.long.in_chunks or resolved.long.synchronise:
        return None
    return resolved.short or shorten_ignoring_layers(resolved.long)


def doubts(*resolved: Resolved) -> tuple[str, ...]:
    """Return the warnings of the check of a plan, or of several forms of one, without duplicates."""
    return tuple(dict.fromkeys(str(problem) for one in resolved for problem in one.warnings))


def expected_time(resolved: Resolved) -> list[str]:
    """Return a sentence with the predicted step time; empty if only simulation would give it."""
    try:
        found = predicted(resolved)
    except InputError:
        return []
    cluster = resolved.setting.cluster.name
    return [f"Predicted: {format_seconds(found.step_time_s)} per step on {cluster}."]


def check_playable(resolved: Resolved) -> None:
    """Refuse to play a step that would take minutes and gigabytes."""
    pipeline, workload = resolved.long.pipeline, resolved.setting.workload
    micro_batches = micro_batches_of(resolved.long, workload.computed_sequences)
    passes = 2 * micro_batches * len(pipeline.placement)
    if passes > MAX_PASSES:
        stages = len(pipeline.placement)
        rule = f"playing {micro_batches} micro-batches on {stages} stages is {passes} passes > {MAX_PASSES}"
        hint = f"global_batch: {workload.global_batch * MAX_PASSES // passes} or less"
        raise InputError(Problem("workload.global_batch", workload.global_batch, rule, hint))
