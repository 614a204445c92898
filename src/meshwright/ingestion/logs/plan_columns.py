"""A plan as columns of a table of runs, which ``run_row`` gets in addition to a log.

Layers per stage and the order of ranks are columns only if they are not the usual ones. What no column can express is
refused by its key: a row without it would describe another run.
"""

from collections.abc import Sequence

from meshwright.cluster.shorthand import parse_shorthand
from meshwright.errors import InputError, Problem, UnsupportedError
from meshwright.model.architecture import Architecture
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.nearest_short import nearest_short
from meshwright.plans.forms.short import DEFAULT_RANK_ORDER, ShortPlan, default_gather
from meshwright.validation.cell_parsers import stage_layers_text

NO_COLUMN = "a table of runs has no column for it"


def plan_columns(plan: ShortPlan) -> dict[str, str]:
    """Return the columns of a short plan; device and number of devices if its cluster is a shorthand."""
    layout, work = plan.layout, plan.workload
    columns: dict[str, object] = {
        "model": plan.model,
        "task": work.task,
        "seq_len": work.seq_len,
        "global_batch": work.global_batch,
        "precision": work.precision,
        "micro_batch": plan.pipeline.micro_batch,
        "tp": layout.tp,
        "pp": layout.pp,
        "virtual_stages": plan.pipeline.virtual_stages,
        "schedule": plan.pipeline.choice.name if layout.pp > 1 else "none",
        "cp": layout.cp,
        "ep": layout.ep,
        "etp": layout.etp,
        "dp": layout.dp_replicate * layout.dp_shard,
        "sharding": plan.sharding,
        "recompute": plan.recompute if isinstance(plan.recompute, str) else " ".join(plan.recompute),
        "stack": plan.stack,
    }
    if layout.sequence_parallel is not None:
        columns["sequence_parallel"] = str(layout.sequence_parallel).lower()
    if plan.sharding != "none" and layout.dp_replicate > 1:
        columns["shard_group"] = layout.dp_shard
    if _used_order(plan, layout.rank_order) != _used_order(plan, DEFAULT_RANK_ORDER):
        columns["rank_order"] = " ".join(layout.rank_order)
    return {name: str(value) for name, value in columns.items()} | _machine(plan.cluster)


def long_plan_columns(plan: LongPlan, architecture: Architecture) -> dict[str, str]:
    """Return the columns of a legal long plan. Raises UnsupportedError for anything that no column expresses."""
    nearest = nearest_short(plan, architecture)
    unsaid = [Problem(p.field, p.value, NO_COLUMN, p.suggestion) for p in nearest.beyond]
    unsaid += fields_without_column(nearest.short)
    if unsaid:
        raise UnsupportedError(unsaid)
    held = nearest.stage_layers
    return plan_columns(nearest.short) | ({"stage_layers": stage_layers_text(held)} if held else {})


def fields_without_column(plan: ShortPlan) -> list[Problem]:
    """Return the fields of a short plan that no column has: schedule options, and an unusual gather of parameters."""
    knobs = plan.pipeline.choice.given_knobs
    problems = [
        Problem(f"pipeline.schedule.{knob}", value, NO_COLUMN, "take it out, if that is what ran")
        for knob, value in knobs.items()
    ]
    if plan.pipeline.choice.written:
        schedule = plan.pipeline.schedule_in_full
        hint = "a schedule by name, if that is what ran"
        problems.append(Problem("pipeline.schedule.file", schedule.file or "lists", NO_COLUMN, hint))
    usual = default_gather(plan.sharding, plan.layout.pp)
    if plan.sharding == "zero3" and plan.gather not in (None, usual):
        problems.append(Problem("gather", plan.gather, NO_COLUMN, f"gather: {usual}, if that is what ran"))
    return problems


def _used_order(plan: ShortPlan, order: Sequence[str]) -> list[str]:
    """Return the order of the axes that have more than one rank."""
    return [axis for axis in order if getattr(plan.layout, axis) > 1]


def _machine(cluster: str) -> dict[str, str]:
    """Return device and number of a shorthand; nothing for the name of a file."""
    try:
        parsed = parse_shorthand(cluster)
    except InputError:
        return {}
    return {"device": parsed.pool.device.id, "devices": str(parsed.devices)} if parsed else {}
