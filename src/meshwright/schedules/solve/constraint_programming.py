"""Find the shortest lists by constraint programming (CP-SAT of OR-tools): a proof, or a better bound.

Every pass is an interval on its rank, and intervals of a rank do not overlap; a pass begins when what it needs has
ended and come; a rank begins as soon as the first micro-batch can be there. Two intervals of each stage and
micro-batch take from what a rank may hold: from the start of F to the end of I the whole, from there to the end of W
what is left. The least makespan is sought first, then the least latency with that makespan. A link carries any
number of messages at once, as in ``timeline.py``.

Micro-batches go through each stage in turn, for F, I and W. No lists are lost by that. Take any schedule, and in each
kind and stage give the n-th slot in time to micro-batch n. Slots stay where they are, so that ranks do as much and hold
as much as before. Where a pass A is needed by a pass B of its micro-batch, by d before it begins: in the schedule each
of the first n slots of B had a slot of A that ended d before it, and these are n of them; so the n-th slot of A, whose
slots are equally long, ends d before the n-th slot of B begins.
"""

from collections.abc import Sequence
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from math import floor
from time import monotonic
from typing import Any, NamedTuple

from meshwright.errors import Problem
from meshwright.schedules.custom.check_lists import check_lists
from meshwright.schedules.solve.lower_bounds import fitting
from meshwright.schedules.solve.precedence_graph import PrecedenceGraph
from meshwright.schedules.solve.solver_input import SolverInput
from meshwright.schedules.solve.tabu_search import Found
from meshwright.schedules.split_backward.pass_numbers import first_starts, numbered
from meshwright.schedules.split_backward.pipeline_state import EPSILON

INSTALL = "pip install 'meshwright[solve]'"
WORKERS = 8
FOR_LATENCY = 0.2
"""Of the time at most, for the least latency once the least makespan is known."""
ENDED = 0.8
"""A search that is given up has taken this part of its time at least."""
FINEST = 10**9
"""No denominator of the part that waits for W is larger."""


class Proof(NamedTuple):
    """The shortest lists that were found, and a makespan that no lists are below."""

    found: Found
    bound: int
    interrupted: bool


def missing_solver() -> Problem | None:
    """Return a problem with a remedy if OR-tools is not installed, else None."""
    if find_spec("ortools") is not None:
        return None
    return Problem("method", "exact", "needs OR-tools, which is not installed here", INSTALL)


def prove(task: SolverInput, start: Found, bound: int, seconds: float, seed: int) -> Proof:
    """Search for lists no longer than the given ones, within ``seconds``; OR-tools must be installed."""
    begun = monotonic()
    model = _Model(task, start, bound)
    shortest = model.least(model.makespan, (1 - FOR_LATENCY) * seconds, seed)
    found, least = min(start, model.found or start), max(bound, shortest)
    if found.figures[0] <= least and not model.interrupted:
        model.model.add(model.makespan <= least)
        left = seconds - (monotonic() - begun)
        model.least(model.latency, min(FOR_LATENCY * seconds, left), seed)
        found = min(found, model.found or found)
    return Proof(found, least, model.interrupted)


class _Model:
    """Variables and constraints of one task."""

    def __init__(self, task: SolverInput, start: Found, bound: int) -> None:
        self.cp_model = import_module("ortools.sat.python.cp_model")
        self.model = self.cp_model.CpModel()
        self.task, self.board = task, PrecedenceGraph(task, start.orders)
        self.found: Found | None = None
        self.interrupted = False
        shortest, self.horizon = start.figures
        # of the latency only what is within the makespan on every rank
        self.begun = [int(begun) for begun in first_starts(task.pipeline)]
        self.horizon = max(self.horizon, shortest + max(self.begun))
        self.starts = [self._start(node) for node in range(self.board.nodes)]
        self.ends = [begin + self.board.seconds[node] for node, begin in enumerate(self.starts)]
        self._order()
        self._ranks()
        self._memory()
        self.makespan = self.model.new_int_var(bound, shortest, "makespan")
        self.latency = self.model.new_int_var(0, self.horizon, "latency")
        for rank, nodes in enumerate(self.board.lists):
            for node in nodes:
                if (node + 1) % self.board.count == 0:
                    self.model.add(self.makespan >= self.ends[node] - self.board.begun[rank])
                    self.model.add(self.latency >= self.ends[node])

    def _start(self, node: int) -> Any:
        begin = self.model.new_int_var(0, self.horizon, "")
        self.model.add_hint(begin, self.board.end[node] - self.board.seconds[node])
        return begin

    def _order(self) -> None:
        """Add data dependencies, micro-batches in turn, and a first pass of each rank at its earliest time."""
        board = self.board
        for node, begin in enumerate(self.starts):
            source = board.source[node]
            if source != board.nothing:
                self.model.add(begin >= self.ends[source] + board.delay[node])
            if node % board.count:
                self.model.add(begin >= self.ends[node - 1])
        for rank, nodes in enumerate(board.lists):
            self.model.add(self.starts[nodes[0]] == self.begun[rank])

    def _ranks(self) -> None:
        for nodes in self.board.lists:
            slots = [(self.starts[node], self.board.seconds[node]) for node in nodes]
            self.model.add_no_overlap(
                [self.model.new_fixed_size_interval_var(begin, length, "") for begin, length in slots]
            )

    def _memory(self) -> None:
        board, holding = self.board, self.task.holding
        stages = board.stages * board.count
        for nodes in board.lists:
            mine = sorted({node // board.count for node in nodes if node < stages})
            sizes = [(holding.whole[stage], holding.left[stage]) for stage in mine]
            parts, capacity = sizes_in_whole(sizes, holding.limit, board.nodes)
            size_of, intervals, taken = dict(zip(mine, parts, strict=True)), [], []
            for node in (node for node in nodes if node < stages):
                times = self.starts[node], self.ends[node + stages], self.ends[node + 2 * stages]
                for (begin, until), part in zip(pairwise(times), size_of[node // board.count], strict=True):
                    length = self.model.new_int_var(0, self.horizon, "")
                    intervals.append(self.model.new_interval_var(begin, length, until, ""))
                    taken.append(part)
            self.model.add_cumulative(intervals, taken, capacity)

    def least(self, goal: Any, seconds: float, seed: int) -> int:
        """Make a variable as small as can be; returns what it can not be below."""
        solver = self.cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = max(0.0, seconds)
        solver.parameters.num_workers, solver.parameters.random_seed = WORKERS, seed
        self.model.minimize(goal)
        status = solver.solve(self.model)
        # an interrupt ends the solver, which then returns as if its time were over
        self.interrupted = status != self.cp_model.OPTIMAL and solver.wall_time < ENDED * seconds
        if status in (self.cp_model.OPTIMAL, self.cp_model.FEASIBLE):
            self._take(solver.values(self.starts).tolist())
        return round(solver.best_objective_bound) if seconds > 0 else 0

    def _take(self, starts: list[int]) -> None:
        """Keep the lists in the order of their starts, if valid; passes that take no time may leave no valid order."""
        board = self.board
        ends = [start + seconds for start, seconds in zip(starts, board.seconds, strict=True)]
        in_turn = [sorted(nodes, key=lambda node: (starts[node], ends[node])) for nodes in board.lists]
        orders = [[node // board.count for node in nodes] for nodes in in_turn]
        if self.task.keeps(orders) and not check_lists(numbered(orders, board.stages)):
            board.lay(orders)
            found = Found(board.figures, orders)
            self.found = min(self.found or found, found)


def sizes_in_whole(
    sizes: Sequence[tuple[float, float]], limit: float, most: int
) -> tuple[list[tuple[int, int]], int]:
    """For every stage of a rank what waits for I and for W, and the limit, in whole numbers.

    Equal stages may hold just what they may. Others are cut off, by 1 part in ``FINEST`` of the limit: so no lists are
    lost, and those that are found are held against the limit itself.
    """
    whole, left = sizes[0]
    if len(set(sizes)) == 1 and whole > 0:
        one, part, capacity = memory_in_whole(limit / whole, left / whole, most)
        return [(one, part)] * len(sizes), capacity
    finest = FINEST / (limit + EPSILON)
    return [(floor(finest * whole), floor(finest * left)) for whole, left in sizes], FINEST


def memory_in_whole(limit: float, kept: float, most: int) -> tuple[int, int, int]:
    """F's memory, the part of it that waits for W, and the limit, in whole numbers that allow just the same.

    x passes that wait for I and y that wait for W fit if x + kept·y is within the limit, for x and y up to ``most``.
    """
    fits = [
        fitting(limit - waiting + EPSILON, kept, most)
        for waiting in range(min(most, floor(limit + EPSILON)) + 1)
    ]
    for finest in (1, 2, 10, 100, 1000, 10**4, 10**5, 10**6, FINEST):
        part = Fraction(kept).limit_denominator(finest)
        whole, left = part.denominator, part.numerator
        capacity = floor((limit + EPSILON) * whole)
        if fits == [fitting(capacity - waiting * whole, left, most) for waiting in range(len(fits))]:
            return whole, left, capacity
    raise AssertionError("a limit that no whole numbers stand for")
