"""A short plan as columns of a table of runs: what ``row_of`` is given beside a log."""

from meshwright.cluster.shorthand import parse_shorthand
from meshwright.errors import InputError
from meshwright.plan.short import ShortPlan


def plan_cells(plan: ShortPlan) -> dict[str, str]:
    """The columns that a plan fills; device and number of devices where its cluster is a shorthand."""
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
        "schedule": plan.pipeline.schedule if layout.pp > 1 else "none",
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
    return {name: str(value) for name, value in columns.items()} | _machine(plan.cluster)


def _machine(cluster: str) -> dict[str, str]:
    """Device and number of a shorthand; nothing for the name of a file."""
    try:
        known = parse_shorthand(cluster)
    except InputError:
        return {}
    return {"device": known.pool.device.id, "devices": str(known.devices)} if known else {}
