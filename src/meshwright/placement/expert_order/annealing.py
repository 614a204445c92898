"""Orders of many experts, by simulated annealing of the guide's seconds, all layers and several walks at once.

A move has two experts of different ranks change places. What it does to singles and pairs of two ranks and two nodes is
found from the rows of the two experts alone. Temperatures fall geometrically; walks that begin at a good order begin
colder, so that they do not lose it. The number of moves follows from how much has to be looked up, not from a clock:
the same seed gives the same orders everywhere.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np

from meshwright.placement.expert_order.greedy_start import grown, spread
from meshwright.placement.expert_order.problem import DispatchLoad, Floats, Ints, Task
from meshwright.program.expert_dispatch.hit_probability import hit_probability

LOOK_UPS = 5 * 10**7
ROUNDS = 1000, 4000
"""Moves of each walk, at least and at most."""
HEATS = 0.5, 0.02
"""Of what moves cost at first: of walks that may lose what they began at, and of those that keep it."""
COLDEST = 1e-3
POINTS = 13


@dataclass(frozen=True, eq=False)
class Guide:
    """``table`` of seconds where each of the three is at one of its ``points``, ``low`` and then every ``step``."""

    low: Floats
    step: Floats
    table: Floats

    @staticmethod
    def of(task: Task) -> "Guide":
        """From perfect balance and one node for all choices, to twice what the model's numbering makes."""
        numbered = task.meeting(task.as_numbered, np.arange(task.layers))
        low = np.array([1.0, 1.0, 1.0])
        most = task.chosen
        high = np.array([2 * numbered.busiest.max(), min(most, task.nodes), min(most, task.ranks)])
        step = np.maximum(high - low, 1e-3) / (POINTS - 1)
        axes = np.meshgrid(
            *(first + each * np.arange(POINTS) for first, each in zip(low, step, strict=True)), indexing="ij"
        )
        seconds = task.seconds(DispatchLoad(*(axis.ravel() for axis in axes)))
        return Guide(low, step, np.broadcast_to(seconds, POINTS**3).reshape(axes[0].shape))

    def seconds(self, of: DispatchLoad) -> Floats:
        """Of every entry."""
        places = [(value - low) / step for value, low, step in zip(of, self.low, self.step, strict=True)]
        cells = [np.clip(place.astype(np.int64), 0, POINTS - 2) for place in places]
        rests = [place - cell for place, cell in zip(places, cells, strict=True)]
        total = np.zeros_like(of.busiest)
        for corner in product((0, 1), repeat=3):
            weight = np.ones_like(total)
            for up, rest in zip(corner, rests, strict=True):
                weight = weight * (rest if up else 1 - rest)
            total += weight * self.table[tuple(cell + up for cell, up in zip(cells, corner, strict=True))]
        return total


@dataclass(eq=False)
class Level:
    """Ranks or nodes of every walk: singles, pairs and whether a token meets them, (walks, parts)."""

    size: int
    singles: Floats
    pairs: Floats
    met: Floats


@dataclass(frozen=True, eq=False)
class Change:
    """The change that a swap makes to two parts of each walk, (walks, 2); zero if both experts lie on one part."""

    parts: Ints
    singles: Floats
    pairs: Floats
    met: Floats


class Walks:
    """Orders of some layers at once, and the sums that moves change."""

    def __init__(self, task: Task, orders: Ints, layers: Ints) -> None:
        self.task, self.orders, self.layers = task, orders, layers
        self.rows = np.arange(len(orders))
        self.levels = tuple(self._level(parts) for parts in (task.ranks, task.nodes))

    def _level(self, parts: int) -> Level:
        singles, pairs = self.task.sums(self.orders, self.layers, parts)
        return Level(
            self.task.experts // parts, singles, pairs, hit_probability(singles, pairs, self.task.chosen)
        )

    def change(self, level: Level, places: Ints) -> Change:
        """Return the change of a level when the experts at two ``places`` of each walk, (walks, 2), are swapped."""
        rows, task = self.rows[:, None], self.task
        parts = places // level.size
        experts = self.orders[rows, places]
        members = self.orders[
            rows[..., None], parts[..., None] * level.size + np.arange(level.size)
        ]  # (walks, 2, size)
        layer = self.layers[:, None, None, None]
        drawn = task.pairs[layer, experts[:, :, None, None], members[:, None, :, :]].sum(3)  # expert × part
        own, other = drawn[:, (0, 1), (0, 1)], drawn[:, (1, 0), (0, 1)]
        between = task.pairs[self.layers, experts[:, 0], experts[:, 1]][:, None]
        apart = parts[:, :1] != parts[:, 1:]
        weight = task.singles[self.layers[:, None], experts]
        singles = level.singles[rows, parts] + apart * (weight[:, ::-1] - weight)
        pairs = level.pairs[rows, parts] + apart * (other - own - between)
        return Change(parts, singles, pairs, hit_probability(singles, pairs, task.chosen))

    def meeting(self, changes: tuple[Change, ...] = ()) -> DispatchLoad:
        """Return the load of each walk's order, after ``changes`` if given."""
        ranks, nodes = self.levels
        loads, totals = ranks.singles, [level.met.sum(1) for level in (nodes, ranks)]
        if changes:
            loads = loads.copy()
            loads[self.rows[:, None], changes[0].parts] = changes[0].singles
            for at, (level, change) in enumerate(zip((nodes, ranks), changes[::-1], strict=True)):
                apart = change.parts[:, 0] != change.parts[:, 1]
                gained = (change.met - level.met[self.rows[:, None], change.parts]).sum(1)
                totals[at] = totals[at] + apart * gained
        return DispatchLoad(loads.max(1) * self.task.ranks / self.task.chosen, *totals)

    def move(self, taken: Ints, places: Ints, changes: tuple[Change, ...]) -> None:
        """Make the moves of the walks that are ``taken``."""
        at = self.rows[taken][:, None]
        self.orders[at, places[taken]] = self.orders[at, places[taken][:, ::-1]]
        for level, change in zip(self.levels, changes, strict=True):
            level.singles[at, change.parts[taken]] = change.singles[taken]
            level.pairs[at, change.parts[taken]] = change.pairs[taken]
            level.met[at, change.parts[taken]] = change.met[taken]


def walked(task: Task, seed: int) -> Ints:
    """Good orders of every layer, the best of each walk: (walks, layers, experts)."""
    rng, guide = np.random.default_rng(seed), Guide.of(task)
    even = spread(task)
    begun = [*((order, HEATS[1]) for order in (*grown(task), even)), (even, HEATS[0])]
    layers = np.tile(np.arange(task.layers), len(begun))
    walks = Walks(task, np.concatenate([order for order, _ in begun]), layers)
    heats = np.repeat([heat for _, heat in begun], task.layers)
    now = guide.seconds(walks.meeting())
    best, best_s = walks.orders.copy(), now.copy()
    looked_up = 4 * len(layers) * sum(level.size for level in walks.levels)
    rounds = int(np.clip(LOOK_UPS // looked_up, *ROUNDS))
    places = _two_places(task, rng, len(layers))
    first = guide.seconds(walks.meeting(tuple(walks.change(level, places) for level in walks.levels)))
    hot = max(float(np.abs(first - now).mean()), float(now.mean()) * 1e-9) * heats
    for number in range(rounds):
        places = _two_places(task, rng, len(layers))
        changes = tuple(walks.change(level, places) for level in walks.levels)
        tried = guide.seconds(walks.meeting(changes))
        heat = hot * COLDEST ** (number / rounds)
        likely = np.exp(-np.maximum(0.0, tried - now) / heat)
        taken = np.flatnonzero(rng.random(len(now)) < likely)
        walks.move(taken, places, changes)
        now[taken] = tried[taken]
        better = now < best_s
        best[better], best_s[better] = walks.orders[better], now[better]
    return best.reshape(len(begun), task.layers, task.experts)


def _two_places(task: Task, rng: np.random.Generator, walks: int) -> Ints:
    """Two places of different ranks for each walk."""
    size = task.experts // task.ranks
    one = rng.integers(task.experts, size=walks)
    rank = (one // size + rng.integers(1, task.ranks, size=walks)) % task.ranks
    return np.stack([one, rank * size + rng.integers(size, size=walks)], 1)
