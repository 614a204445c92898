"""Plans of another number of replicas for the same global batch: the layout inside a replica stays as it is.

With n replicas of b sequences in each of m micro-batches, the batch has n·b·m sequences. For n′ replicas these are cut
evenly if that can be, else by ``batch_share``, with one more sequence for the first replicas.
"""

from collections.abc import Iterator

from meshwright.errors import InputError, Problem
from meshwright.plans.forms.long import Layout, LongPlan

REPLICA = "dp_replicate"


def replicas_of_plan(plan: LongPlan) -> int:
    """Return the number of replicas that can be lost or join, each with copies of all states."""
    return min(layout.grid.dp_replicate for layout in plan.layouts.values())


def check_replicas(plan: LongPlan) -> None:
    """Raise InputError if replicas of a plan cannot come and go, with the reason."""
    problems = list(_reasons(plan))
    if problems:
        raise InputError(problems)


def _reasons(plan: LongPlan) -> Iterator[Problem]:
    suggestion = "--on-fault restart, which goes back to a checkpoint"
    if len(plan.layouts) > 1:
        rule = "replicas come and go in plans with one layout for all layers"
        yield Problem("layouts", list(plan.layouts), rule, suggestion)
        return
    (layout,) = plan.layouts.values()
    states = plan.states if layout.states is None else layout.states
    for kind in ("parameter", "optimizer"):
        if REPLICA in getattr(states, kind):
            rule = f"{kind} states are sharded over the replicas, so a lost rank holds the only copy of its shard"
            yield Problem(f"states.{kind}", list(getattr(states, kind)), rule, suggestion)
    experts = layout.experts
    if experts is not None and experts.edp_replicate % layout.grid.dp_replicate:
        rule = (
            f"edp_replicate {experts.edp_replicate} is no multiple of dp_replicate {layout.grid.dp_replicate}: "
            "a lost rank holds the only copy of its experts"
        )
        yield Problem("layouts.experts", experts.edp_replicate, rule, suggestion)


def plans_of_replicas(plan: LongPlan, replicas: int) -> Iterator[LongPlan]:
    """Yield the plans of so many replicas, the best first. Their rules are still to be checked.

    A plan with as many replicas as ``plan`` is ``plan`` itself. Raises InputError if replicas cannot come and go.
    """
    check_replicas(plan)
    ((name, layout),) = plan.layouts.items()
    grid, batch = layout.grid, plan.workload.global_batch
    if replicas == grid.dp_replicate:
        yield plan
        return
    count, now = replicas * grid.dp_shard, grid.dp_replicate * grid.dp_shard
    shares = layout.batch_share or (plan.pipeline.micro_batch,) * now
    together = sum(shares)
    most = max(shares) * -(-now // count)
    for size in (plan.pipeline.micro_batch, *range(max(1, most), 0, -1)):
        if batch % (count * size) == 0:
            yield _with(plan, name, _of_replicas(layout, replicas, None), size)
    sums = [n for n in range(batch, count - 1, -1) if batch % n == 0]
    for total in sorted(sums, key=lambda n: (abs(n - together), n)):
        share = tuple(total // count + (at < total % count) for at in range(count))
        yield _with(plan, name, _of_replicas(layout, replicas, share), 1)


def _of_replicas(layout: Layout, replicas: int, share: tuple[int, ...] | None) -> Layout:
    grid, experts = layout.grid, layout.experts
    if experts is not None:
        each = experts.edp_replicate // grid.dp_replicate
        experts = experts.model_copy(update={"edp_replicate": each * replicas})
    update = {
        "grid": grid.model_copy(update={REPLICA: replicas}),
        "experts": experts,
        "batch_share": share,
        "node_order": None,
    }
    return layout.model_copy(update=update)


def _with(plan: LongPlan, name: str, layout: Layout, micro_batch: int) -> LongPlan:
    pipeline = plan.pipeline.model_copy(update={"micro_batch": micro_batch})
    return plan.model_copy(update={"layouts": {name: layout}, "pipeline": pipeline})
