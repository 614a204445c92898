"""Moves that can make lists shorter, each with an estimate of its gain.

A makespan is the length of a longest way through the lists. Runs of passes on it that follow each other on one rank are
its blocks, and the way stays as long as it is unless a pass of some block goes in front of that block or behind it. So
of each block the first pass of every kind and stage is to go to its front, the last one to its back. Where order or
memory stop it on the way it goes as far as it can, since that may free the way for another.
"""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

from meshwright.schedules.solve.precedence_graph import Node, PrecedenceGraph


class Move(NamedTuple):
    """A pass and its new position, with the longest way through what the move changes; ``tie`` is drawn."""

    estimate: int
    tie: float
    node: Node
    position: int


def moves(board: PrecedenceGraph, random: Random) -> Iterator[Move]:
    """Yield the moves that may shorten one critical path."""
    for block in blocks(board, random):
        for node, target in _targets(board, block):
            position = reach(board, node, target)
            if position != board.at[node]:
                yield Move(estimate(board, node, position), random.random(), node, position)


def blocks(board: PrecedenceGraph, random: Random) -> Iterator[list[Node]]:
    """Yield runs of two or more consecutive passes of one rank on a critical path, drawn among equal ones."""
    spans = board.spans
    longest = max(spans)
    node = board.lists[random.choice([rank for rank, span in enumerate(spans) if span == longest])][-1]
    block = [node]
    while True:
        start = board.end[node] - board.seconds[node]
        before, source = board.before[node], board.source[node]
        by_rank = before != board.nothing and board.end[before] == start
        by_data = source != board.nothing and board.end[source] + board.delay[node] == start
        if by_rank and not (by_data and board.rank[source] != board.rank[node] and random.random() < 0.5):
            node = before
            block.append(node)
            continue
        if len(block) > 1:
            yield block[::-1]
        if not by_data:
            return
        node = source
        block = [node]


def _targets(board: PrecedenceGraph, block: list[Node]) -> Iterator[tuple[Node, int]]:
    """First passes of a kind and stage to the front, last ones to the back."""
    for nodes in (block, block[::-1]):
        seen = {nodes[0] // board.count}
        for node in nodes[1:]:
            if node // board.count not in seen:
                seen.add(node // board.count)
                yield node, board.at[nodes[0]]


def reach(board: PrecedenceGraph, node: Node, position: int) -> int:
    """Return the position nearest to ``position`` to which order and memory let a pass move on its rank."""
    here, change, nodes, code = (
        board.at[node],
        board.change[node],
        board.lists[board.rank[node]],
        node // board.count,
    )
    if position < here:
        while here > position:
            other = nodes[here - 1]
            full = change > 0 and board.held[other] - board.change[other] + change > board.limit
            if full or other == board.source[node] or other // board.count == code:
                break
            here -= 1
        return here
    needing = (board.target[node], board.weight[node])
    while here < position:
        other = nodes[here + 1]
        full = change < 0 and board.held[other] - change > board.limit
        if full or other in needing or other // board.count == code:
            break
        here += 1
    return here


def estimate(board: PrecedenceGraph, node: Node, position: int) -> int:
    """Return the longest path through the moved passes, with the ends before and the rests behind unchanged."""
    nodes, here = board.lists[board.rank[node]], board.at[node]
    first, last = min(position, here), max(position, here)
    passed = [node, *nodes[first:last]] if position < here else [*nodes[first + 1 : last + 1], node]
    end, rest, seconds, delay = board.end, board.rest, board.seconds, board.delay
    clock, starts = end[nodes[first - 1]] if first else 0, list[int]()
    for moved in passed:
        ready = end[board.source[moved]] + delay[moved]
        clock = ready if ready > clock else clock
        starts.append(clock)
        clock += seconds[moved]
    after, longest = rest[board.behind[nodes[last]]], 0
    for moved, start in zip(reversed(passed), reversed(starts), strict=True):
        then = board.target[moved]
        after = max(after, rest[then] + delay[then], rest[board.weight[moved]]) + seconds[moved]
        longest = max(longest, start + after)
    return longest
