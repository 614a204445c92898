"""Search plans with model states in host memory, where none fits with all of them on the devices."""

from collections.abc import Iterator
from dataclasses import replace

from meshwright.plans.setting import Setting
from meshwright.search.algorithms.exhaustive import RankedPlans
from meshwright.search.space.constraints import Keep
from meshwright.search.space.plan_space import Space
from meshwright.verbs.plan.search_space import Progress, Scope, search

OPTIMIZER, PARAMETERS = "offload.optimizer", "offload.parameters"


def search_with_states_on_hosts(
    scope: Scope, setting: Setting, progress: Progress | None = None
) -> tuple[Space, RankedPlans] | None:
    """Return the space and the plans found with the fewest states on the hosts that make any plan fit.

    First all of the optimizer's states go there, then parameters too, and these alone where there are no others; None
    where the stack or the question says
    otherwise, or where nothing fits so either.
    """
    said = {*scope.keep, *scope.forbid}
    node = setting.cluster.pool.node
    known = node.host_bytes_per_s and node.host_memory_bytes and node.host_memory_bytes_per_s
    if said & {OPTIMIZER, PARAMETERS} or not known:
        return None
    for keep in _attempts(setting):
        space, found = search(replace(scope, keep={**scope.keep, **keep}), setting, progress)
        if len(found.ranking):
            return space, found
    return None


def _attempts(setting: Setting) -> Iterator[Keep]:
    ways = setting.stack.state_offloads
    if setting.workload.optimizer.forward_only:
        yield from ({PARAMETERS: "all"} for way in ways if way.has_part("parameters", 1.0))
        return
    if any(way.has_part("optimizer", 1.0) and way.parameters == "none" for way in ways):
        yield {OPTIMIZER: "all"}
    if any(way.has_part("optimizer", 1.0) and way.has_part("parameters", 1.0) for way in ways):
        yield {OPTIMIZER: "all", PARAMETERS: "all"}
