"""Graphs with branches: drawn ones, and one whose answers can be counted."""

from hypothesis import strategies as st

from meshwright.schedules.solve import Effort
from meshwright.search.operator_graph import Cost, Graph, Task

SOON = Effort(seconds=60, steps=60, method="local")


@st.composite
def graphs(draw, most=6, least=1):
    """A graph of which every part is connected with the rest; times may be 0."""
    number = draw(st.integers(least, most))
    ticks = st.integers(0, 4)
    costs = []
    for _ in range(number):
        kept = draw(st.integers(0, 3))
        costs.append(
            Cost(
                draw(st.integers(1, 4)),
                draw(ticks),
                draw(ticks),
                kept,
                draw(st.integers(0, kept)),
                draw(ticks),
            )
        )
    edges = {}
    for target in range(1, number):
        for source in draw(st.sets(st.integers(0, target - 1), min_size=1, max_size=3)):
            edges[source, target] = draw(st.integers(0, 2))
    return Graph(tuple(costs), edges)


@st.composite
def tasks(draw, most=6, sizes=((2, 2), (2, 3), (3, 2))):
    """A task with, or without, a limit of memory under which there may be no lists."""
    graph = draw(graphs(most))
    ranks, micro_batches = draw(st.sampled_from(sizes))
    together = sum(cost.state + cost.kept for cost in graph.costs)
    memory = draw(st.none() | st.integers(max(1, together // ranks), 2 * together + 1))
    return Task(graph, ranks, micro_batches, memory)


def equal(number, edges, ticks=1, message=0):
    """Operators whose passes take equally long and hold nothing."""
    return Graph((Cost(ticks, ticks, ticks),) * number, dict.fromkeys(edges, message))


def two_branches(length, joint, message=0):
    """Two chains of so many operators that meet in a third."""
    first, second = range(length), range(length, 2 * length)
    last = range(2 * length, 2 * length + joint)
    edges = [(a, a + 1) for chain in (first, second, last) for a in chain[:-1]]
    return equal(2 * length + joint, [*edges, (first[-1], last[0]), (second[-1], last[0])], message=message)
