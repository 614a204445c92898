"""Search a plan for the remaining devices of a run, with the same model, workload and global batch."""

from dataclasses import replace
from pathlib import Path
from tempfile import NamedTemporaryFile

from meshwright.cluster.cluster import Cluster
from meshwright.cluster.cluster_to_file import dump_cluster
from meshwright.errors import InfeasibleError, InputError
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import Resolved, resolve
from meshwright.stack.stack import OWN_STACK
from meshwright.verbs.plan.plan_on_cluster import PlanRequest, answer
from meshwright.verbs.plan.proposal import Proposal

SUGGESTION = "--on-fault restart, once the device is back, or shrink where replicas are left"


def replanned(resolved: Resolved, devices: int, folder: Path, *, all_of_them: bool = False) -> Resolved:
    """Return the best plan on at most ``devices`` devices; fewer may be better, where degrees must divide the batch.

    ``all_of_them``: on exactly so many. The other cluster is written into ``folder``. Raises InfeasibleError with the
    reason for every number of devices.
    """
    plan, cluster = resolved.long, resolved.setting.cluster
    refusal = _refusal(resolved)
    if refusal:
        raise InfeasibleError("No other plan is searched.", [refusal], SUGGESTION)
    found: list[tuple[Proposal, Cluster]] = []
    reasons = []
    for count in (devices,) if all_of_them else range(devices, 0, -1):
        if found and 2 * count < found[0][1].devices:  # halving the devices of a plan never makes it faster
            break
        smaller = replace(cluster, pools=(replace(cluster.pool, count=count),))
        path = folder / f"cluster-{count}.yaml"
        header = ShortPlan(
            plan=1, model=plan.model, cluster=str(path), workload=plan.workload, stack=OWN_STACK
        )
        try:
            setting = replace(resolved.setting, cluster=smaller)
            found.append((answer(PlanRequest(header, top=1), setting).proposals[0], smaller))
        except (InfeasibleError, InputError) as error:
            reasons.append(f"{count} devices: {str(error).splitlines()[0]}")
    if not found:
        raise InfeasibleError(f"No plan fits on the {devices} devices that are left.", reasons, SUGGESTION)
    best, smaller = min(found, key=lambda one: one[0].report.step_time_s)
    _write(folder / f"cluster-{smaller.devices}.yaml", dump_cluster(smaller))
    return resolve(best.long or best.plan, stack_binds=True)


def _refusal(resolved: Resolved) -> str:
    """Return why no other plan is searched for a run; empty if one is."""
    plan, cluster = resolved.long, resolved.setting.cluster
    if len(cluster.pools) > 1:
        return (
            f"the cluster has {len(cluster.pools)} pools of devices, and which of them lost one is not known"
        )
    if plan.synchronise:
        return "the plan has entries under synchronise, which a search does not choose"
    if plan.dtypes:
        return "the plan has dtypes of its own, which a search does not choose"
    return ""


def _write(path: Path, text: str) -> None:
    """Write a file at once: several ranks may write the same one."""
    with NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        file.write(text)
    Path(file.name).replace(path)
