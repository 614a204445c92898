"""Predict a legal plan: by closed forms where they know its shape, by playing the lowered Program otherwise."""

from meshwright.cost.predict import closed_form, report
from meshwright.errors import InputError, Problem
from meshwright.plan.expand import shorten_but_stages
from meshwright.plan.resolve import Resolved
from meshwright.result import Report

MAX_PASSES = 2**18


def predicted(resolved: Resolved) -> Report:
    """The Report of a plan. Raises InputError where only playing it would tell, and that would take minutes."""
    short = resolved.short or shorten_but_stages(resolved.long)
    if short is not None and short.gather is None:
        estimate = closed_form(short, resolved.setting, resolved.long.pipeline.stages)
    else:
        from meshwright.simulate.predict import simulated

        check_playable(resolved)
        estimate = simulated(resolved.long, resolved.setting)
    return report(resolved.long, estimate, resolved.setting)


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
