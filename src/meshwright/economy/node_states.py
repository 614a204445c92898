"""The states of a job on failing nodes: nodes away, nodes at work, and shares of the time.

N nodes work and S stand by. A working node fails N·M seconds after it began to work on average; it is away for a repair
of D seconds. With j nodes away, N + S − j are left. The job uses whole units of u nodes of them, at most all N:

    w(j) = u·min(N/u, ⌊(N + S − j)/u⌋)

A unit of N nodes is a job that stops when it is short of one; of one node, a job that goes on with any number; of N/R
nodes, one whose R replicas go on without each other. Nodes that do not work do not fail. So j is a birth-death
chain with births at the rate w(j)/(N·M) and deaths at j/D. Its stationary distribution is

    π(j) ∝ Π_{i < j} w(i)·D/(N·M·(i + 1))

whatever the distribution of the repairs is, as for Erlang's loss system (B. A. Sevastyanov 1957), which it is for a
unit of N nodes.
"""

from dataclasses import dataclass
from math import inf, sqrt

NEGLIGIBLE = 1e-12
"""Shares of the time that are left out."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """Nodes in repair, nodes at work, and the share of the time with these numbers."""

    away: int
    working: int
    share: float


def node_states(
    nodes: int, unit: int, spare_nodes: int, mtbf_s: float, repair_s: float
) -> tuple[NodeState, ...]:
    """Return the states of a job of ``nodes`` that uses whole units, the fewest away first.

    ``mtbf_s`` is the time between two failures while all nodes work. A state without working nodes is the last one.
    """
    load = 0.0 if mtbf_s == inf else repair_s / mtbf_s
    most = min(nodes + spare_nodes, int(load + 12 * sqrt(load)) + 40)
    weights, weight = [], 1.0
    for away in range(most + 1):
        working = unit * min(nodes // unit, (nodes + spare_nodes - away) // unit)
        weights.append((away, working, weight))
        weight *= working / nodes * load / (away + 1)
        if not weight:
            break
        if weight > 1e200:
            weights = [(at, of, each / 1e200) for at, of, each in weights]
            weight /= 1e200
    total = sum(weight for _, _, weight in weights)
    found = (NodeState(away, working, weight / total) for away, working, weight in weights)
    return tuple(state for state in found if state.share > NEGLIGIBLE)
