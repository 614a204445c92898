"""Latest starts: the latest time of every pass of an order of F and I that keeps the makespan.

The order is played from its end to its beginning. All ranks may take as long as the busiest one works, each ends with
its own last W, and where the longest way through the order takes more than that, all may take so much longer.
"""

from meshwright.schedules.pipeline import Pipeline
from meshwright.schedules.split_backward.pass_numbers import Orders, PassTable, first_starts


def latest_starts(orders: Orders, pipeline: Pipeline) -> list[list[float]]:
    """One time for every pass of the orders."""
    first, backwards = first_starts(pipeline), _Backwards(orders, pipeline)
    late = max(start - of_rank[0] for start, of_rank in zip(first, backwards.starts, strict=True))
    return [[start + max(0.0, late) for start in of_rank] for of_rank in backwards.starts]


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
