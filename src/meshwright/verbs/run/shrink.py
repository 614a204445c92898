"""Make the plans that a run goes on with when replicas are lost or join."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from meshwright.cluster.cluster_to_file import dump_cluster
from meshwright.errors import InputError, Problem
from meshwright.plans.layers.replica_count import plans_of_replicas, replicas_of_plan
from meshwright.plans.resolve import resolve_with
from meshwright.verbs.run.run_request import CheckedRun

if TYPE_CHECKING:
    from meshwright.runtime.recovery.members.run_members import Shrinkable
    from meshwright.runtime.training.job_and_outcome import Outcome, Training


def of_replicas(grant: CheckedRun, replicas: int) -> CheckedRun:
    """Return what a run does with another number of replicas: the best plan that is legal. Raises InputError.

    The smaller or larger cluster is written into the output folder.
    """
    setting, long = grant.resolved.setting, grant.resolved.long
    if replicas == replicas_of_plan(long):
        return grant
    if len(setting.cluster.pools) > 1:
        rule = (
            f"the cluster has {len(setting.cluster.pools)} pools of devices, and replicas come and go in one"
        )
        raise InputError(Problem("cluster", long.cluster, rule, "--on-fault restart"))
    count = setting.cluster.devices // replicas_of_plan(long) * replicas
    cluster = replace(setting.cluster, pools=(replace(setting.cluster.pool, count=count),))
    path = (grant.options.output / f"cluster-{count}.yaml").resolve()
    problems: tuple[Problem, ...] = ()
    for plan in plans_of_replicas(long, replicas):
        here = plan.model_copy(update={"cluster": str(path)})
        try:
            found = resolve_with(here, setting.model, cluster, setting.stack, stack_binds=True)
        except InputError as error:
            problems = problems or tuple(error.problems)
            continue
        _write(path, dump_cluster(cluster))
        return replace(grant, resolved=found)
    if not problems:
        batch = long.workload.global_batch
        rule = f"a batch of {batch} sequences cannot be cut for {replicas} replicas"
        problems = (Problem("workload.global_batch", batch, rule, "a larger batch"),)
    raise InputError(problems)


def shrinkable_run(grant: CheckedRun, training: Callable[[CheckedRun], "Training"]) -> "Shrinkable":
    """Return what a run needs to go on with other numbers of replicas; ``training`` makes a plan's."""
    from meshwright.runtime.recovery.members.run_members import Shrinkable

    return Shrinkable(
        replicas_of_plan(grant.resolved.long), lambda count: training(of_replicas(grant, count))
    )


def after_changes(grant: CheckedRun, outcome: "Outcome") -> CheckedRun:
    """Return what a run did at its end, with the replicas that it had then."""
    if not outcome.members:
        return grant
    whole = grant.resolved.setting.cluster.devices
    return of_replicas(grant, outcome.members[-1].ranks * replicas_of_plan(grant.resolved.long) // whole)


def _write(path: Path, text: str) -> None:
    """Write a file unless it is there: every rank makes the same one."""
    if not path.exists():
        path.write_text(text, encoding="utf-8")
