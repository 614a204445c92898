"""The shortest step of a graph with branches: all ranks of all stages, and all lists."""

from itertools import product


def shortest_of_all(task, below):
    """The least step of any lists within memory, or ``below`` if none is shorter than that; ranks are alike."""
    number = len(task.graph.costs)
    placements = {_as_first_used(p) for p in product(range(task.ranks), repeat=number)}
    best = below
    for placement in sorted(placements):
        best = _Lists(task, placement, best).shortest()
    return best


def _as_first_used(placement):
    known = list(dict.fromkeys(placement))
    return tuple(known.index(rank) for rank in placement)


class _Lists:
    """Every order in which passes can begin, without those that are nowhere better than another of the same passes."""

    def __init__(self, task, placement, best):
        self.task, self.place, self.best = task, placement, best
        self.number, self.total = len(placement), task.micro_batches
        self.seen = {}
        self.needs = [self._needs(*divmod(code, self.number)) for code in range(3 * self.number)]
        codes = range(3 * self.number)
        self.needing = {c: [o for o in codes if any(k == c for k, _ in self.needs[o])] for c in codes}
        self.behind = self._longest_behind()

    def shortest(self):
        held = [0] * self.task.ranks
        for rank, cost in zip(self.place, self.task.graph.costs, strict=True):
            held[rank] += cost.state
        if all(map(self._fits, held)):
            self._on(((0,) * 3 * self.number), [0] * self.task.ranks, held, {})
        return self.best

    def _fits(self, held):
        return self.task.memory is None or held <= self.task.memory

    def _needs(self, kind, stage):
        """Passes by number, and what their results take."""
        edges = [
            (a, b, ticks if self.place[a] != self.place[b] else 0)
            for (a, b), ticks in self.task.graph.edges.items()
        ]
        if kind == 0:
            return [(a, ticks) for a, b, ticks in edges if b == stage]
        if kind == 2:
            return [(self.number + stage, 0)]
        return [(self.number + b, ticks) for a, b, ticks in edges if a == stage] or [(stage, 0)]

    def _longest_behind(self):
        """From the end of every pass to the end of all that need it."""
        behind = [0] * 3 * self.number

        def longest(code):
            found = [0]
            for other in self.needing[code]:
                ticks = next(ticks for source, ticks in self.needs[other] if source == code)
                found.append(ticks + self._ticks(other) + longest(other))
            return max(found)

        return [longest(code) for code in range(len(behind))]

    def _ticks(self, code):
        return self.task.graph.costs[code % self.number][code // self.number]

    def _on(self, done, clocks, held, ends):
        if sum(done) == 3 * self.number * self.total:
            self.best = min(self.best, max(clocks))
            return
        left = [0] * self.task.ranks
        for code, count in enumerate(done):
            stage, kind = code % self.number, code // self.number
            left[self.place[stage]] += (self.total - count) * self.task.graph.costs[stage][kind]
        if max(clock + work for clock, work in zip(clocks, left, strict=True)) >= self.best:
            return
        open_ = sorted(key for key in ends if any(done[o] <= key[1] for o in self.needing[key[0]]))
        state = (*clocks, *(ends[key] for key in open_))
        known = self.seen.setdefault(done, [])
        if any(all(a <= b for a, b in zip(other, state, strict=True)) for other in known):
            return
        known.append(state)
        for code, micro_batch in enumerate(done):
            if micro_batch < self.total:
                self._with(done, clocks, held, ends, code, micro_batch)

    def _with(self, done, clocks, held, ends, code, m):
        kind, stage = divmod(code, self.number)
        if any((source, m) not in ends for source, _ in self.needs[code]):
            return
        cost, rank = self.task.graph.costs[stage], self.place[stage]
        change = (cost.kept, cost.left - cost.kept, -cost.left)[kind]
        if not self._fits(held[rank] + change):
            return
        start = max([clocks[rank], *(ends[source, m] + ticks for source, ticks in self.needs[code])])
        end = start + self._ticks(code)
        if end + self.behind[code] >= self.best:
            return
        clocks, held = list(clocks), list(held)
        clocks[rank] = end
        held[rank] += change
        self._on((*done[:code], m + 1, *done[code + 1 :]), clocks, held, ends | {(code, m): end})
