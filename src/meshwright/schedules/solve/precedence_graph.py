"""A precedence graph of the lists, kept up to date while passes move: predecessors and successors.

``end`` is when a pass ends, ``rest`` the longest way from its start to the end of some rank, less that rank's
beginning: start + rest is the longest span that the pass is part of, and the largest of all is the makespan. Where the
latency is to be short every rank counts from the beginning of all, and its span is its end. All passes
stand in one order in which they can run. A move takes a pass to another place on its rank: it changes a short part of
that order (and finds out there whether ranks would wait for each other), then ends behind it and rests before it are
counted anew. This is the graph of job-shop scheduling (Nowicki and Smutnicki, Management Science 42, 1996).

A pass is a node, code · M + micro-batch, with codes as in ``schedules/split_backward/pass_numbers.py``. Times are
whole ticks, so that equal ones are equal; memory is in forward passes of a stage.
"""

from collections.abc import Sequence

from meshwright.schedules.solve.solver_input import SolverInput
from meshwright.schedules.split_backward.pass_numbers import Orders, Pass, PassTable
from meshwright.schedules.split_backward.pipeline_state import EPSILON

Node = int
NEVER = -(2**62)


class PrecedenceGraph:
    """Nodes of every rank in turn, and what follows from that; begins with lists that can run."""

    def __init__(self, task: SolverInput, orders: Orders) -> None:
        table, count = PassTable(task.pipeline), task.pipeline.micro_batches
        stages = self.stages = table.stages
        codes = [code for code in range(3 * stages) for _ in range(count)]
        self.count, self.limit = count, task.holding.limit + EPSILON
        self.nodes = self.nothing = len(codes)  # behind them one that is nothing, then the end of every rank
        self.begun = [int(start) for start in task.counted_from]
        self.rank = [table.rank[code] for code in codes]
        self.seconds = [int(table.seconds[code]) for code in codes]
        delay = (*table.delay, *[0.0] * stages)
        self.delay = [*(int(delay[code]) for code in codes), 0]
        self.change = [task.holding.changes[code] for code in codes]
        none = [-1] * stages
        self.source = self._of_same((*table.source, *range(stages, 2 * stages)))
        self.target = self._of_same((*table.target, *none))
        self.weight = self._of_same((*none, *range(2 * stages, 3 * stages), *none))
        self.end = [0] * (self.nodes + 1)
        self.rest = [*[0] * self.nodes, NEVER, *(-start for start in self.begun)]
        self.lay(orders)

    def _of_same(self, codes: Sequence[Pass]) -> list[Node]:
        """For every node that of the same micro-batch with another code."""
        count = self.count
        return [code * count + m if code >= 0 else self.nothing for code in codes for m in range(count)]

    def lay(self, orders: Orders) -> None:
        """Start again with other lists."""
        self.lists = [self._numbered(order) for order in orders]
        self.at, self.held, self.place = [0] * self.nodes, [0.0] * self.nodes, [0] * self.nodes
        self.before, self.behind = [self.nothing] * self.nodes, [self.nothing] * self.nodes
        for rank, nodes in enumerate(self.lists):
            self._link(rank, 0, len(nodes) - 1)
        self.order = self._playable()
        for place, node in enumerate(self.order):
            self.place[node] = place
        self._ends_from(0)
        self._rests_to(self.nodes - 1)

    def _numbered(self, order: Sequence[Pass]) -> list[Node]:
        seen, nodes = [0] * (3 * self.stages), []
        for code in order:
            nodes.append(code * self.count + seen[code])
            seen[code] += 1
        return nodes

    def _link(self, rank: int, first: int, last: int) -> None:
        """Places, neighbours and what is held, of a part of a rank's list."""
        nodes = self.lists[rank]
        previous = nodes[first - 1] if first else self.nothing
        held = self.held[previous] if first else 0.0
        for position in range(first, last + 1):
            node = nodes[position]
            self.at[node], self.before[node] = position, previous
            if position:
                self.behind[previous] = node
            held += self.change[node]
            self.held[node] = held
            previous = node
        if last + 1 < len(nodes):
            self.behind[previous] = nodes[last + 1]
            self.before[nodes[last + 1]] = previous
        else:
            self.behind[previous] = self.nodes + 1 + rank

    def _playable(self) -> list[Node]:
        """All nodes in an order in which they can run."""
        order, position = list[Node](), [0] * len(self.lists)
        done = [*[False] * self.nodes, True]
        todo = list(range(len(self.lists)))
        while todo:
            rank = todo.pop()
            nodes = self.lists[rank]
            while position[rank] < len(nodes) and done[self.source[nodes[position[rank]]]]:
                node = nodes[position[rank]]
                position[rank] += 1
                done[node] = True
                order.append(node)
                if self.target[node] != self.nothing and self.rank[self.target[node]] != rank:
                    todo.append(self.rank[self.target[node]])
        assert len(order) == self.nodes, "the ranks wait for each other"
        return order

    def _ends_from(self, place: int) -> None:
        end, before, source, delay, seconds = self.end, self.before, self.source, self.delay, self.seconds
        for node in self.order[place:]:
            start, ready = end[before[node]], end[source[node]] + delay[node]
            end[node] = (ready if ready > start else start) + seconds[node]

    def _rests_to(self, place: int) -> None:
        rest, behind, target, weight = self.rest, self.behind, self.target, self.weight
        delay, seconds = self.delay, self.seconds
        for node in self.order[place::-1]:
            after, then = rest[behind[node]], target[node]
            if rest[then] + delay[then] > after:
                after = rest[then] + delay[then]
            if rest[weight[node]] > after:
                after = rest[weight[node]]
            rest[node] = after + seconds[node]

    @property
    def spans(self) -> list[int]:
        """From its first start to its last end, of every rank; or to its end from the first start of all."""
        return [self.end[nodes[-1]] - begun for nodes, begun in zip(self.lists, self.begun, strict=True)]

    @property
    def figures(self) -> tuple[int, int]:
        """Makespan and latency."""
        return max(self.spans), max(self.end[nodes[-1]] for nodes in self.lists)

    @property
    def orders(self) -> list[list[Pass]]:
        """The lists as codes."""
        return [[node // self.count for node in nodes] for nodes in self.lists]

    def move(self, node: Node, position: int) -> bool:
        """Take a pass to another position on its rank; false, and nothing done, where no rank could go on then."""
        here, rank = self.at[node], self.rank[node]
        nodes = self.lists[rank]
        change = self._earlier if position < here else self._later
        part = change(node, nodes[position])
        if part is None:
            return False
        first, changed = part
        self.order[first : first + len(changed)] = changed
        for place, moved in enumerate(changed, first):
            self.place[moved] = place
        nodes.insert(position, nodes.pop(here))
        self._link(rank, min(position, here), max(position, here))
        self._ends_from(first)
        self._rests_to(first + len(changed) - 1)
        return True

    def _earlier(self, node: Node, other: Node) -> tuple[int, list[Node]] | None:
        """Return the order from ``other`` to ``node``, with all that needs ``other`` after ``node``."""
        first, last = self.place[other], self.place[node]
        needs, follow, free = {other}, [other], list[Node]()
        for later in self.order[first + 1 : last]:
            if self.before[later] in needs or self.source[later] in needs:
                needs.add(later)
                follow.append(later)
            else:
                free.append(later)
        return None if self.source[node] in needs else (first, [*free, node, *follow])

    def _later(self, node: Node, other: Node) -> tuple[int, list[Node]] | None:
        """Return the order from ``node`` to ``other``, with all that ``other`` needs before ``node``."""
        first, last = self.place[node], self.place[other]
        needed, lead, free = {other}, [other], list[Node]()
        for prior in self.order[last - 1 : first : -1]:
            if needed.intersection((self.behind[prior], self.target[prior], self.weight[prior])):
                needed.add(prior)
                lead.append(prior)
            else:
                free.append(prior)
        if self.target[node] in needed or self.weight[node] in needed:
            return None
        return first, [*reversed(lead), node, *reversed(free)]
