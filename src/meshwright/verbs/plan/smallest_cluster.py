"""Find the smallest larger cluster of the same devices on which a plan fits.

Counts are parts of one node, then whole nodes. A few counts per octave bracket the answer; whether a plan fits does not
only grow with the count (degrees must divide the batch), so the counts that were passed over are tried next.
"""

from collections.abc import Iterator
from dataclasses import replace

from meshwright.plans.setting import Setting
from meshwright.verbs.plan.host_state_search import search_with_states_on_hosts
from meshwright.verbs.plan.search_space import Scope, search

MOST_DEVICES = 2**17
MOST_PASSED_OVER = 24
"""Searches that are spent on counts below the first one that does."""
EXACT = "the smallest larger count; beyond one node, whole nodes"
COARSE = "the smallest of the counts that were tried"


def smallest_cluster(setting: Setting, scope: Scope) -> str:
    """Return the cluster that would do, or what else could be changed where none does."""
    pool, (_, at, node) = setting.cluster.pool, setting.cluster.name.partition(" @ ")
    tried: list[int] = []
    legal = False
    for count in _coarse_counts(setting.cluster.devices, pool.node.devices):
        is_legal, fits = _outcome(setting, scope, count)
        legal = legal or is_legal
        if fits:
            exact, least = _smallest(setting, scope, count, tried)
            return f"{pool.device.id} x {least}{at}{node} would do ({EXACT if exact else COARSE})"
        tried.append(count)
    if legal:
        return "another device with more memory, or a smaller model, batch or sequence"
    fixed = scope.keep or scope.schedules
    return "keep less" if fixed else "a batch or a sequence length that more degrees divide"


def _coarse_counts(devices: int, of_node: int) -> Iterator[int]:
    """Yield the counts above ``devices``: every part of a node, then four numbers of nodes per octave."""
    nodes = {quarter * 2**octave // 4 for octave in range(18) for quarter in (4, 5, 6, 7)}
    counts = {*range(1, of_node), *(of_node * number for number in nodes)}
    yield from (count for count in sorted(counts) if devices < count <= MOST_DEVICES)


def _smallest(setting: Setting, scope: Scope, enough: int, tried: list[int]) -> tuple[bool, int]:
    """Return the smallest count up to ``enough`` that does, and whether all below it were tried.

    Where very many were passed over, those above the last one that does not fit are tried.
    """
    devices, of_node = setting.cluster.devices, setting.cluster.pool.node.devices
    whole = range((devices // of_node + 1) * of_node, enough, of_node)
    passed_over = sorted(set(whole) - set(tried))
    exact = len(passed_over) <= MOST_PASSED_OVER
    near = passed_over if exact else [c for c in passed_over if c > tried[-1]][:MOST_PASSED_OVER]
    return exact, next((count for count in near if _outcome(setting, scope, count)[1]), enough)


def _outcome(setting: Setting, scope: Scope, count: int) -> tuple[bool, bool]:
    """Return whether a plan is legal on so many devices, and whether one fits."""
    cluster = setting.cluster
    larger = replace(cluster, pools=(replace(cluster.pool, count=count),), links=None)
    best, larger_setting = replace(scope, top=1), replace(setting, cluster=larger)
    space, found = search(best, larger_setting)
    if len(space) and not len(found.ranking):
        space, found = search_with_states_on_hosts(best, larger_setting) or (space, found)
    return len(space) > 0, len(found.ranking) > 0
