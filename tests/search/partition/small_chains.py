"""Small chains of layers, and their partitions tried one by one in plain Python."""

import random
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import combinations, pairwise, product
from math import inf
from typing import NamedTuple

from meshwright.schedules.pipeline import looped_placement, v_placement
from meshwright.search.partition.layer_chain import Chain

SUMS = 1e-12
"""Sums in another order differ by so much."""
SHAPES = (
    *((looped_placement, ranks, 1) for ranks in (1, 2, 3, 4, 5)),
    *((looped_placement, ranks, chunks) for ranks, chunks in ((1, 3), (2, 2), (2, 3), (3, 2))),
    *((v_placement, ranks, chunks) for ranks, chunks in ((2, 2), (3, 2), (2, 3), (1, 2))),
)


class Tried(NamedTuple):
    """What one partition comes to."""

    seconds: float
    bytes: float
    squares: float


@dataclass(frozen=True)
class SmallChain:
    """What a chain is made from, as nested lists; ``kept[mode][phase][layer]``, ``in_flight[moment][phase][stage]``."""

    placement: tuple[int, ...]
    forward: list[list[float]]
    input_: list[list[float]]
    weight: list[list[float]]
    states: list[float]
    kept: list[list[list[float]]]
    in_flight: list[list[list[int]]]
    other: list[float]

    @property
    def chain(self):
        names = ("forward", "input_", "weight", "states", "kept", "in_flight", "other")
        return Chain.of(self.placement, **{name: getattr(self, name) for name in names})

    @property
    def ranks(self):
        return max(self.placement) + 1

    def partitions(self):
        """Every one: stops and modes."""
        layers, stages = len(self.states), len(self.placement)
        for inner in combinations(range(1, layers), stages - 1):
            for modes in product(range(len(self.forward)), repeat=stages):
                yield (0, *inner, layers), modes

    def stage_seconds(self, stops, modes):
        """Seconds of every stage."""
        return [
            sum(self.forward[m][x] + self.input_[m][x] + self.weight[m][x] for x in range(a, b))
            for (a, b), m in zip(pairwise(stops), modes, strict=True)
        ]

    def seconds(self, stops, modes):
        """Seconds of every rank."""
        times = self.stage_seconds(stops, modes)
        return [
            sum(t for t, r in zip(times, self.placement, strict=True) if r == rank)
            for rank in range(self.ranks)
        ]

    def held(self, stops, modes):
        """Bytes of every rank at the moment when it holds most."""
        worst = []
        for rank in range(self.ranks):
            mine = [s for s, r in enumerate(self.placement) if r == rank]
            states = sum(self.states[x] for s in mine for x in range(stops[s], stops[s + 1]))
            moments = [
                sum(
                    flights[phase][s] * self.kept[modes[s]][phase][x]
                    for s in mine
                    for phase in range(len(flights))
                    for x in range(stops[s], stops[s + 1])
                )
                for flights in self.in_flight
            ]
            worst.append(self.other[rank] + states + max(moments))
        return worst

    @cached_property
    def all(self):
        """Every partition: seconds of its slowest rank, bytes of its fullest, squares of the stages' seconds."""
        return [
            Tried(
                max(self.seconds(*partition)),
                max(self.held(*partition)),
                sum(seconds**2 for seconds in self.stage_seconds(*partition)),
            )
            for partition in self.partitions()
        ]

    def best(self, by, capacity=inf, seconds=inf):
        """The least of a number of those partitions that fit and are no slower; None where none does."""
        fitting = (
            getattr(tried, by)
            for tried in self.all
            if tried.bytes <= capacity * (1 + SUMS) and tried.seconds <= seconds * (1 + SUMS)
        )
        return min(fitting, default=None)


@cache
def random_chain(seed, shapes=SHAPES, most_modes=2):
    """A chain that is small enough to try everything; about half of them have few kinds of layers."""
    rng = random.Random(f"chain {seed}")
    place, ranks, chunks = shapes[seed % len(shapes)]
    placement = place(ranks, chunks)
    modes = rng.randint(1, most_modes)
    layers = len(placement) + rng.randint(0, 4 if modes == 1 or len(placement) < 5 else 2)
    kinds = [rng.randrange(2) if rng.random() < 0.5 else x for x in range(layers)]
    phases = rng.randint(1, 2)

    def of_kinds(low, high, steps=12):
        table = [rng.randint(low * steps, high * steps) / steps for _ in range(layers + 1)]
        return [table[kind] for kind in kinds]

    return SmallChain(
        placement,
        forward=[of_kinds(0, 2) for _ in range(modes)],
        input_=[of_kinds(1, 3) for _ in range(modes)],
        weight=[of_kinds(0, 2) for _ in range(modes)],
        states=of_kinds(1, 8),
        kept=[[of_kinds(0, 3) for _ in range(phases)] for _ in range(modes)],
        in_flight=[
            [[rng.randint(0, 5) for _ in placement] for _ in range(phases)] for _ in range(rng.randint(1, 3))
        ],
        other=[rng.choice((0.0, 1.5)) for _ in range(ranks)],
    )
