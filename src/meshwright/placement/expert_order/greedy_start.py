"""Greedy starting orders: experts that are chosen together share a part, or popular ones are separated."""

import numpy as np

from meshwright.placement.expert_order.problem import Floats, Ints, Task


def grown(task: Task) -> tuple[Ints, ...]:
    """Orders of every layer, each (layers, experts): by pairs, and by how much more they are than chance."""
    by_chance = task.singles[:, :, None] * task.singles[:, None, :]
    return tuple(_grown(task, table) for table in (task.pairs, task.pairs - by_chance))


def _grown(task: Task, table: Floats) -> Ints:
    """Fill nodes one by one, and ranks of each, with the expert most often chosen together with those inside."""
    count = task.experts
    inside = np.broadcast_to(np.arange(count), (task.layers, count))
    order = _filled(table, inside, count // task.nodes)
    size = count // task.nodes
    for begin in range(0, count, size):
        members = order[:, begin : begin + size]
        order[:, begin : begin + size] = _filled(table, members, count // task.ranks)
    return order


def _filled(table: Floats, members: Ints, size: int) -> Ints:
    """``members`` (layers, n) in an order in which every ``size`` of them belong together."""
    rows = np.arange(len(members))[:, None]
    among = table[rows[..., None], members[:, :, None], members[:, None, :]]
    left = np.ones(members.shape, dtype=bool)
    picked = np.empty_like(members)
    drawn = np.zeros(members.shape)
    for place in range(members.shape[1]):
        if place % size == 0:
            drawn = np.where(left[:, None, :], among, 0.0).sum(2)
        at = np.where(left, drawn, -np.inf).argmax(1)
        picked[:, place] = at
        left[rows[:, 0], at] = False
        row = among[rows[:, 0], at]
        drawn = row.copy() if place % size == 0 else drawn + row
    return np.take_along_axis(members, picked, 1)


def spread(task: Task) -> Ints:
    """Assign the most popular remaining expert to the least busy rank with room (Graham, 1969)."""
    size = task.experts // task.ranks
    falling = np.argsort(-task.singles, axis=1, kind="stable")
    load, held = np.zeros((task.layers, task.ranks)), np.zeros((task.layers, task.ranks), dtype=np.int64)
    order, rows = np.empty_like(falling), np.arange(task.layers)
    for place in range(task.experts):
        expert = falling[:, place]
        rank = np.where(held < size, load, np.inf).argmin(1)
        order[rows, rank * size + held[rows, rank]] = expert
        load[rows, rank] += task.singles[rows, expert]
        held[rows, rank] += 1
    return order
