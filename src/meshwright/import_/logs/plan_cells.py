"""A plan as columns of a table of runs: what ``row_of`` is given beside a log.

What each stage holds and the order of ranks are written where they are not the usual ones. What no column says is
refused by its key: a row without it would be another run's.
"""

from collections.abc import Sequence

from meshwright.cluster.shorthand import parse_shorthand
from meshwright.errors import InputError, Problem, UnsupportedError
from meshwright.model.architecture import Architecture
from meshwright.plan.long import LongPlan
from meshwright.plan.nearest import nearest_short
from meshwright.plan.short import DEFAULT_RANK_ORDER, ShortPlan, default_gather
from meshwright.validation.cells import stage_layers_text

NO_COLUMN = "a table of runs has no column for it"


def plan_cells(plan: ShortPlan) -> dict[str, str]:
    """The columns that a short plan fills; device and number of devices where its cluster is a shorthand."""
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


def long_plan_cells(plan: LongPlan, architecture: Architecture) -> dict[str, str]:
    """The columns that a legal plan in full fills. Raises UnsupportedError for what no column says."""
    nearest = nearest_short(plan, architecture)
    unsaid = [Problem(p.field, p.value, NO_COLUMN, p.suggestion) for p in nearest.beyond]
    unsaid += without_column(nearest.short)
    if unsaid:
        raise UnsupportedError(unsaid)
    held = nearest.stage_layers
    return plan_cells(nearest.short) | ({"stage_layers": stage_layers_text(held)} if held else {})


def without_column(plan: ShortPlan) -> list[Problem]:
    """What a short plan says and no column does: knobs of its schedule, and an unusual gather of sharded parameters."""
    knobs = plan.pipeline.choice.turned
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
    """The order of the axes that have more than one rank."""
    return [axis for axis in order if getattr(plan.layout, axis) > 1]


def _machine(cluster: str) -> dict[str, str]:
    """Device and number of a shorthand; nothing for the name of a file."""
    try:
        known = parse_shorthand(cluster)
    except InputError:
        return {}
    return {"device": known.pool.device.id, "devices": str(known.devices)} if known else {}
