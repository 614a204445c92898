"""The share of time that becomes work under each policy of recovery, with its checkpoint interval and spare nodes.

===========  ========================================================================================================
``stop``     the run ends; after ``by_hand_hours``, in which nothing fails, somebody starts it as ``restart`` would
``restart``  the same plan starts again from the newest checkpoint, when as many nodes are there as it has
``replan``   a plan for the nodes that are left starts again from the newest checkpoint; when a node is back, the run
             saves and starts again with it
``shrink``   the replicas that are left go on in their processes and share the batch: the step is lost, no interval
===========  ========================================================================================================

With j nodes away (``node_states.py``) a job works on w(j) of its N nodes, at w(j)/N of its speed, so

    share = Σ_j π(j)·w(j)/N·useful(j)

``useful`` is that of ``checkpoint_interval.py`` at the rate of failures of the working nodes, less

- under ``replan``, saving and a restart for each node that comes back while some are missing;
- under ``shrink``, where two replicas or more work, for each failure the step, twice ``shrink_s`` (without the replica,
  and with it again) and a replica's work in the seconds of a restart. ``shared_failures`` of the failures end all
  replicas, and so does each of the last one: they cost what they cost ``restart``.

Under ``stop`` all nodes work for M of M + H + W seconds: after H = ``by_hand_hours`` the job waits W for a node, with
the chance p·e^(−(S+1)H/D) that all S + 1 nodes are away still, D/(S+1); p is Erlang's B(S, D/(M + H)). With H = 0 it is
``restart``, whose share is the goodput of ``goodput.py``, exactly. The others are approximations, as an interval may
have several states: they are within 0.01 of jobs that are played failure by failure (tests). Speeds are in proportion
to nodes: a plan for fewer nodes may be better or worse, and may not exist. Fewer nodes than hold the states do not
work.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count, pairwise
from math import ceil, exp, gcd, inf, isfinite
from typing import Any, Literal

from meshwright.economy.assumptions import Assumptions
from meshwright.economy.goodput import FailureModel
from meshwright.economy.node_states import NodeState, node_states
from meshwright.economy.spare_nodes import cheapest_spare_nodes, stopped_share
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.setting import Setting
from meshwright.units import HOUR_S

Policy = Literal["stop", "restart", "replan", "shrink"]
POLICIES: tuple[Policy, ...] = ("stop", "restart", "replan", "shrink")
"""Policies, the simplest first."""


@dataclass(frozen=True, slots=True)
class PolicyShare:
    """A policy, its seconds of work between two checkpoints, its spare nodes, and the share of time that is kept."""

    policy: Policy
    interval_s: float
    spare_nodes: int
    useful_share: float

    def worth(self, setting: Setting) -> float:
        """Return the useful share, where nodes are priced for each device that is paid."""
        pool = setting.cluster.pool
        paid = setting.cluster.devices + self.spare_nodes * pool.node.devices
        return self.useful_share / (1 if pool.usd_per_device_hour is None else paid)

    def to_json(self) -> dict[str, Any]:
        """Return JSON-ready data; an interval without end is null."""
        interval_s = self.interval_s if isfinite(self.interval_s) else None
        return {
            "policy": self.policy,
            "interval_s": interval_s,
            "spare_nodes": self.spare_nodes,
            "useful_share": self.useful_share,
        }


def whole_copies(plan: LongPlan) -> int:
    """Return how many replicas each hold all states of a plan."""
    layouts = plan.layouts.values()
    states = [plan.states, *(layout.states for layout in layouts if layout.states is not None)]
    if any("dp_replicate" in of.parameter + of.gradient + of.optimizer for of in states):
        return 1
    return gcd(*(layout.grid.dp_replicate for layout in layouts))


def recovery_policies(
    found: FailureModel, setting: Setting, assumed: Assumptions, step_s: float, copies: int
) -> tuple[PolicyShare, ...]:
    """Return the policies that are possible, the best first, each with its best number of spare nodes.

    ``found``: the failures of the job. ``copies``: replicas with all states. The best has the least dollars where nodes
    are priced, spare ones counted, else the largest share; of equal ones the simplest is first.
    """
    pool = setting.cluster.pool
    priced = pool.usd_per_device_hour is not None

    def best(rule: _Rule) -> PolicyShare:
        if assumed.spare_nodes is not None:
            return rule.at(assumed.spare_nodes)
        shares = (rule.at(spares).useful_share for spares in count())
        times = (1 / share if share else inf for share in shares)
        return rule.at(cheapest_spare_nodes(times, pool.count, pool.node.devices, priced=priced))

    shares = map(best, _rules(found, setting, assumed, step_s, copies))
    return tuple(sorted(shares, key=lambda one: one.worth(setting), reverse=True))


@dataclass(frozen=True, slots=True)
class _Rule:
    """A policy on a job, and its share of time that becomes work, by its number of spare nodes.

    ``by_hand_s``: until somebody starts a run again.
    """

    policy: Policy
    found: FailureModel
    step_s: float
    by_hand_s: float = 0.0

    def at(self, spare_nodes: int) -> PolicyShare:
        """Return the policy with a number of spare nodes: a job that stops when it is short of a node."""
        found = self.found
        work_s = max(found.planned_work_s(self.step_s), self.step_s)
        useful = found.useful_at(self.step_s, work_s, found.mtbf_s)
        return PolicyShare(self.policy, work_s, spare_nodes, self._running(spare_nodes) * useful)

    def _running(self, spare_nodes: int) -> float:
        """Return the share of the time in which all nodes work."""
        found, hand_s = self.found, self.by_hand_s
        if found.mtbf_s == inf:
            return 1.0
        short = stopped_share(found.mtbf_s + hand_s, found.repair_s, spare_nodes - 1) if spare_nodes else 1.0
        each_s = found.repair_s / (spare_nodes + 1)
        waits_s = short * each_s * exp(-hand_s / each_s) if each_s else 0.0
        return found.mtbf_s / (found.mtbf_s + hand_s + waits_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PartRule(_Rule):
    """A policy that goes on with a part of the nodes: whole units of ``unit``, at least ``least_nodes`` in all.

    Seconds ``growth_s``: for each node that comes back; ``local_s``: for each failure that ends a unit alone, while
    others work. ``local``: the share of such failures.
    """

    unit: int
    least_nodes: int = 1
    growth_s: float = 0.0
    local_s: float = 0.0
    local: float = 0.0

    def at(self, spare_nodes: int) -> PolicyShare:
        """Return the policy with a number of spare nodes."""
        states = self._states(spare_nodes)
        work_s = self._work_s(states)
        return PolicyShare(self.policy, work_s, spare_nodes, self._share(states, work_s))

    def _states(self, spare_nodes: int) -> tuple[NodeState, ...]:
        found = self.found
        return node_states(found.nodes, self.unit, spare_nodes, found.mtbf_s, found.repair_s)

    def _mtbf_s(self, state: NodeState) -> float:
        return self.found.mtbf_s * self.found.nodes / state.working

    def _fatal(self, state: NodeState) -> float:
        """Return the share of failures in a state that throw away the work since the last checkpoint."""
        return 1 - self.local if state.working > self.unit else 1.0

    def _work_s(self, states: tuple[NodeState, ...]) -> float:
        """Work between two checkpoints: the given one, or the best for the failures that throw work away."""
        running = [state for state in states if state.working >= self.least_nodes]
        time = sum(state.share for state in running)
        fatal = sum(state.share * self._fatal(state) / self._mtbf_s(state) for state in running)
        planned_s = self.found.planned_work_s(self.step_s, time / fatal if fatal else inf)
        return max(planned_s, self.step_s)

    def _share(self, states: tuple[NodeState, ...], work_s: float) -> float:
        after = dict(pairwise(states))
        return sum(
            state.share * state.working / self.found.nodes * self._useful(state, after.get(state), work_s)
            for state in states
            if state.working >= self.least_nodes
        )

    def _useful(self, state: NodeState, next_state: NodeState | None, work_s: float) -> float:
        """Return the share of a state's time that becomes work; ``next_state`` has one node more away."""
        found, mtbf_s, fatal = self.found, self._mtbf_s(state), self._fatal(state)
        useful = found.useful_at(self.step_s, work_s, mtbf_s / fatal if fatal else inf)
        useful /= 1 + (1 - fatal) * self.local_s / mtbf_s
        if self.growth_s and next_state is not None and next_state.working < state.working:
            leaving = 1 / mtbf_s + state.away / found.repair_s
            grown = next_state.share * next_state.away / found.repair_s / state.share
            useful *= 1 - grown * (1 - exp(-leaving * self.growth_s)) / leaving
        return useful


def _rules(
    found: FailureModel, setting: Setting, assumed: Assumptions, step_s: float, copies: int
) -> Iterator[_Rule]:
    """Yield the possible policies, the simplest first where shares may be equal."""
    nodes, pool = found.nodes, setting.cluster.pool
    if assumed.checkpoint_every_s is None:
        found = replace(found, interval_s=None)
    yield _Rule("restart", found, step_s)
    yield _Rule("stop", found, step_s, assumed.by_hand_hours * HOUR_S)
    held = pool.node.devices * pool.device.memory_bytes
    least = min(nodes, ceil(found.checkpoint_bytes / held))
    growth_s = found.on_disk_s + found.restart_s
    yield _PartRule("replan", found, step_s, unit=1, least_nodes=least, growth_s=growth_s)
    unit = ceil(nodes / copies)
    if nodes // unit > 1:
        local_s = step_s + 2 * assumed.shrink_s + found.restart_s * unit / nodes
        local = 1 - assumed.shared_failures
        yield _PartRule("shrink", found, step_s, unit=unit, local_s=local_s, local=local)
