"""Local search: tabu search over lists, with a few random moves when it stagnates.

Each step makes the best move that does not take a pass back which was moved a short while ago, whether lists become
longer by it or not (``tabu_moves.py``). When that has led to nothing shorter for long, or there is no move, some
passes are moved at random, every second time from the shortest lists met so far. All that is drawn comes from the
seed, and nothing looks at a clock but the caller: equal numbers of steps give equal lists.
"""

from itertools import count
from random import Random
from typing import NamedTuple

from meshwright.schedules.solve.precedence_graph import PrecedenceGraph
from meshwright.schedules.solve.tabu_moves import blocks, moves, reach
from meshwright.schedules.split_backward.pass_numbers import Orders

PATIENCE = 300
"""Steps without shorter lists before something is tried at random; one more for each ``NODES``."""
NODES = 8
REST = (8, 30)
"""For so many steps, drawn between these, a pass that was moved stays."""
KICKS = (2, 5, 10, 20)
DISTANCES = (-12, -6, -3, -2, -1, 1, 2, 3, 6, 12)
TOO_LONG = 1.02
"""Lists that are so much longer than the shortest are left."""


class Found(NamedTuple):
    """Lists of codes and their figures, makespan and latency."""

    figures: tuple[int, int]
    orders: Orders


class TabuSearch:
    """A walk over lists; ``best`` are the shortest ones met, of equally long ones those with the least latency."""

    def __init__(self, board: PrecedenceGraph, seed: int) -> None:
        self.board, self.random = board, Random(seed)
        self.free_at = [0] * board.nodes
        self.steps = self.since = 0
        self.kicks = count(1)
        self.best = Found(board.figures, board.orders)
        self.patience = PATIENCE + board.nodes // NODES

    def step(self) -> None:
        """One move, or several at random."""
        self.steps += 1
        if not self._best_move() or self.steps - self.since > self.patience:
            self._kick()
        figures = self.board.figures
        if figures < self.best.figures:
            self.best = Found(figures, self.board.orders)
            self.since = self.steps

    def _best_move(self) -> bool:
        board, shortest = self.board, self.best.figures[0]
        for move in sorted(moves(board, self.random)):
            allowed = self.free_at[move.node] <= self.steps or move.estimate < shortest
            if allowed and board.move(move.node, move.position):
                self.free_at[move.node] = self.steps + self.random.randint(*REST)
                return True
        return False

    def _kick(self) -> None:
        """Move passes of a critical path, and some others, a few places; keep the rest."""
        board, random, shortest = self.board, self.random, self.best.figures[0]
        self.since = self.steps
        if next(self.kicks) % 2 == 0 or board.figures[0] > TOO_LONG * shortest:
            board.lay(self.best.orders)
        critical = [node for block in blocks(board, random) for node in block]
        for _ in range(random.choice(KICKS)):
            node = (
                random.choice(critical)
                if critical and random.random() < 0.7
                else random.randrange(board.nodes)
            )
            last = len(board.lists[board.rank[node]]) - 1
            target = min(last, max(0, board.at[node] + random.choice(DISTANCES)))
            position = reach(board, node, target)
            if position != board.at[node]:
                board.move(node, position)
