"""Fill W into the gaps of a given order of F and I: the part that all zero-bubble schedules share.

Where W goes is decided by playing: a rank that waits for the input of its next pass runs the oldest W that is left, and
one that would pass its memory limit with the next F runs W until it fits. A W that ends later than the wait delays the
next pass, which a ``Rule`` allows for a part of W, as long as the schedule need not be longer
(``latest_starts``), or always, so that every W is right behind its I.
"""

from collections.abc import Sequence
from typing import Literal

from meshwright.schedules.pipeline import Pipeline
from meshwright.schedules.split_backward.pass_numbers import Orders, Pass, PassTable, first_starts
from meshwright.schedules.split_backward.pipeline_state import EPSILON, PipelineState, PlayedPasses

Rule = float | Literal["deadline", "at-once"]
"""By what part of itself a W may end after a wait; by as much as the next pass may wait; or however much."""


class _Backwards(PassTable):
    """The game from its end; ``latest`` has the starts of each pass, the last micro-batch first."""

    def __init__(self, orders: Orders, pipeline: Pipeline) -> None:
        super().__init__(pipeline)
        self.orders = orders
        work = [0.0] * len(orders)
        for code, seconds in enumerate(self.seconds):
            work[self.rank[code]] += pipeline.micro_batches * seconds
        self.clock = [
            first + max(work) - self.seconds[order[-1] + self.stages]
            for first, order in zip(first_starts(pipeline), orders, strict=True)
        ]
        self.starts = [[0.0] * len(order) for order in orders]
        self.left = [len(order) for order in orders]
        self.latest: list[list[float]] = [[] for _ in range(2 * self.stages)]
        todo = list(range(len(orders)))
        while todo:
            todo += self._retreat(todo.pop())

    def _retreat(self, rank: int) -> set[int]:
        """Place passes of a rank until one's result is not wanted yet; returns the ranks that can place more."""
        order, served = self.orders[rank], set[int]()
        while self.left[rank]:
            code = order[self.left[rank] - 1]
            starts, target, end = self.latest[code], self.target[code], self.clock[rank]
            if target >= 0:
                if len(starts) == len(self.latest[target]):
                    break
                end = min(end, self.latest[target][len(starts)] - self.delay[target])
            self.left[rank] -= 1
            self.clock[rank] = end - self.seconds[code]
            self.starts[rank][self.left[rank]] = self.clock[rank]
            starts.append(self.clock[rank])
            if self.source[code] >= 0:
                served.add(self.rank[self.source[code]])
        return served - {rank}


def fill_weight_gradients(
    orders: Orders, pipeline: Pipeline, limits: Sequence[float], rule: Rule
) -> PlayedPasses | None:
    """Return the orders with W filled in; None where they cannot be kept within the ranks' memory limits."""
    filling = _Filling(orders, pipeline, limits, rule)
    return filling.played() if filling.run_all() else None


class _Filling(PipelineState):
    def __init__(self, orders: Orders, pipeline: Pipeline, limits: Sequence[float], rule: Rule) -> None:
        super().__init__(pipeline)
        self.orders, self.limits = orders, limits
        self.part = rule if isinstance(rule, float) else 0.0
        self.at_once = rule == "at-once"
        self.latest = latest_starts(orders, pipeline) if rule == "deadline" else None
        self.position = [0] * len(orders)
        self.weights: list[list[Pass]] = [[] for _ in orders]
        self.taken = [0] * len(orders)

    def run_all(self) -> bool:
        """Play to the end; false where a rank can not go on."""
        todo = list(range(len(self.orders)))
        while todo:
            todo += self._advance(todo.pop())
        for rank, weights in enumerate(self.weights):
            for code in weights[self.taken[rank] :]:
                self.run(code)
        return all(at == len(order) for at, order in zip(self.position, self.orders, strict=True))

    def _advance(self, rank: int) -> set[int]:
        """Run passes of a rank until one has to wait for another rank; returns the ranks that got something."""
        order, served = self.orders[rank], set[int]()
        while self.position[rank] < len(order):
            code = order[self.position[rank]]
            ready = self.ready(code)
            if ready is None or not self._run_weights(rank, code, ready):
                break
            self.run(code, ready)
            self.position[rank] += 1
            if code >= self.stages:
                self.weights[rank].append(code + self.stages)
            if self.target[code] >= 0:
                served.add(self.rank[self.target[code]])
        return served - {rank}

    def _run_weights(self, rank: int, code: Pass, ready: float) -> bool:
        """Run W before a pass; false where it does not fit into memory even so."""
        weights = self.weights[rank]
        while True:
            full = code < self.stages and self.held[rank] + 1 > self.limits[rank] + EPSILON
            if self.taken[rank] == len(weights):
                return not full
            weight = weights[self.taken[rank]]
            if not full and not self._allowed(rank, weight, ready):
                return True
            self.taken[rank] += 1
            self.run(weight)

    def _allowed(self, rank: int, weight: Pass, ready: float) -> bool:
        if self.at_once:
            return True
        clock = self.clock[rank]
        if ready <= clock + EPSILON:
            return False
        until = ready + self.part * self.seconds[weight]
        if self.latest is not None:
            until = max(until, self.latest[rank][self.position[rank]])
        return clock + self.seconds[weight] <= until + EPSILON


def latest_starts(orders: Orders, pipeline: Pipeline) -> list[list[float]]:
    """Return how long each pass of an order of F and I may wait without making the schedule longer.

    The order is played from its end. All ranks may take as long as the busiest one works, each ends with its last W,
    and where the longest way through the order takes more than that, all may take so much longer.
    """
    first, backwards = first_starts(pipeline), _Backwards(orders, pipeline)
    late = max(start - of_rank[0] for start, of_rank in zip(first, backwards.starts, strict=True))
    return [[start + max(0.0, late) for start in of_rank] for of_rank in backwards.starts]
