"""Predict a legal plan: by closed forms where they know its shape, by playing the lowered Program otherwise."""

from dataclasses import replace

from meshwright.cost.predict import closed_form, report
from meshwright.errors import InputError, Problem
from meshwright.plan.expand import shorten_but_stages
from meshwright.plan.resolve import Resolved
from meshwright.result import Report
from meshwright.units import format_seconds

MAX_PASSES = 2**18


def predicted(resolved: Resolved) -> Report:
    """The Report of a plan, with what is doubtful about it.

    Raises InputError where only playing it would tell, and that would take minutes.
    """
    short = resolved.short or shorten_but_stages(resolved.long)
    if short is not None and short.gather in (None, "per-unit"):
        estimate = closed_form(short, resolved.setting, resolved.long.pipeline.stages)
    else:
        from meshwright.simulate.predict import simulated

        check_playable(resolved)
        estimate = simulated(resolved.long, resolved.setting)
    return replace(report(resolved.long, estimate, resolved.setting), remarks=doubts(resolved))


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
