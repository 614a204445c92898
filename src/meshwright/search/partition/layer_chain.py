"""A chain of layers to be cut into stages: the cost of every layer on every stage, in seconds and bytes.

Embedding and head are layers like the others. A stage computes in one of several modes (ways to recompute); a mode
changes seconds and bytes. What a rank holds is largest at one of several moments: at a moment it holds so many
micro-batches of each of its stages, and perhaps in several phases (waiting for B or I, waiting for W). So

    load of rank r = base_r + max over moments c of Σ over its stages s and their layers l of cost(mode_s, c, s, l)

where seconds have one moment, and the bytes of a layer are states(l) + Σ over phases f of
in_flight(c, f, s)·kept(mode, f, l).
A stage's costs are a difference of two sums over the layers before a place.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from meshwright.errors import InputError, Problem

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Measure:
    """``costs[mode, moment, stage, layer]``; ``base`` is what each rank has besides: (P,)."""

    costs: Floats
    base: Floats

    @cached_property
    def sums(self) -> Floats:
        """Of the layers before each place: (modes, moments, K, L + 1)."""
        return _summed(self.costs)

    @cached_property
    def sums_at_least(self) -> Floats:
        """``sums`` as if every layer were in the mode in which it costs least: (moments, K, L + 1)."""
        return _summed(self.costs.min(0))

    @cached_property
    def least(self) -> Floats:
        """Sums in the mode and on the stage where each layer costs least: (moments, L + 1)."""
        return _summed(self.costs.min((0, 2)))

    @property
    def everything(self) -> float:
        """More than any rank can have."""
        return float(self.base.max() + self.sums[..., -1].max((0, 1)).sum())


@dataclass(frozen=True, slots=True)
class Cut:
    """Stage s has the layers ``stops[s]`` to ``stops[s + 1]`` exclusive and computes in ``modes[s]``."""

    stops: tuple[int, ...]
    modes: tuple[int, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        """Layers of every stage."""
        return tuple(b - a for a, b in pairwise(self.stops))


@dataclass(frozen=True, eq=False)
class Chain:
    """L layers for K stages; stage s is on rank ``placement[s]``."""

    placement: tuple[int, ...]
    seconds: Measure
    held: Measure

    @classmethod
    def of(
        cls,
        placement: tuple[int, ...],
        *,
        forward: ArrayLike,
        input_: ArrayLike,
        weight: ArrayLike = 0.0,
        states: ArrayLike = 0.0,
        kept: ArrayLike = 0.0,
        in_flight: ArrayLike = 0.0,
        other: ArrayLike = 0.0,
    ) -> "Chain":
        """Build a chain from the costs of a model's layers.

        ``forward``, ``input_``, ``weight``: seconds of a micro-batch, (L,) or (modes, L). ``states``: bytes, (L,).
        ``kept``: bytes of a micro-batch in flight, (L,), (modes, L) or (modes, phases, L). ``in_flight``: (K,),
        (moments, K) or (moments, phases, K). ``other``: bytes that a rank holds besides, one number or (P,).
        Raises InputError.
        """
        stages, ranks = len(placement), max(placement) + 1
        times = np.atleast_2d(_floats(forward) + _floats(input_) + _floats(weight))
        keeps = _phased(kept, times.shape[1])
        flights = _fullest(_phased(in_flight, stages), placement)
        held = np.einsum("mfl,cfk->mckl", keeps, flights) + _floats(states)
        modes = max(len(times), len(held))
        _check(times, held, stages)
        return cls(
            placement,
            Measure(_on_stages(times[:, None, None], modes, stages), np.zeros(ranks)),
            Measure(_on_stages(held, modes, stages), np.broadcast_to(_floats(other), ranks)),
        )

    def holding(self, held: ArrayLike, stops: tuple[int, ...]) -> "Chain":
        """Return the chain with the bytes that ranks hold with these stages, all in one mode: (modes, P).

        What a rank holds besides its layers is that of the mode in which it is most.
        """
        each = np.atleast_2d(_floats(held))
        cuts = [Cut(stops, (mode,) * len(self.placement)) for mode in range(len(each))]
        known = np.stack([self.loads(self.held, cut) for cut in cuts])
        more = np.maximum(0.0, each - known).max(0)
        return replace(self, held=replace(self.held, base=self.held.base + more))

    @property
    def ranks(self) -> int:
        """P."""
        return max(self.placement) + 1

    @property
    def layers(self) -> int:
        """L."""
        return self.seconds.costs.shape[-1]

    def loads(self, measure: Measure, cut: Cut) -> Floats:
        """Every rank's load by a measure: (P,)."""
        return measure.base + self.moments(measure, cut, range(len(self.placement))).max(0)

    def moments(self, measure: Measure, cut: Cut, stages: Sequence[int]) -> Floats:
        """Return the load that stages add to their ranks at every moment: (moments, P)."""
        some = np.array(stages, dtype=np.int64)
        modes, stops = np.array(cut.modes)[some], np.array(cut.stops)
        costs = measure.sums[modes, :, some, stops[some + 1]] - measure.sums[modes, :, some, stops[some]]
        result = np.zeros((self.ranks, measure.costs.shape[1]))
        np.add.at(result, np.array(self.placement)[some], costs)
        return result.T


def _check(times: Floats, held: Floats, stages: int) -> None:
    """Raise InputError with every reason why these are no chain for so many stages."""
    problems, layers = [], times.shape[1]
    if layers < stages:
        rule = f"{stages} stages > {layers} layers, embedding and head among them"
        problems.append(Problem("stages", stages, rule, f"{layers} stages or fewer"))
    for field, costs in (("seconds", times), ("bytes", held)):
        wrong = ~(np.isfinite(costs) & (costs >= 0))
        if wrong.any():
            rule = "what a layer costs is a number from 0"
            problems.append(Problem(field, float(costs[wrong][0]), rule, "write 0"))
    if problems:
        raise InputError(problems)


def _floats(values: ArrayLike) -> Floats:
    return np.asarray(values, dtype=np.float64)


def _phased(values: ArrayLike, length: int) -> Floats:
    """(n,), (a, n) or (a, phases, n) → (a, phases, n)."""
    array = _floats(values)
    array = array[:, None] if array.ndim == 2 else array
    return np.broadcast_to(array, np.broadcast_shapes(array.shape, (1, 1, length)))


def _fullest(in_flight: Floats, placement: tuple[int, ...]) -> Floats:
    """Return each rank's undominated moments of micro-batches in flight: (moments, phases, K).

    A moment of a rank has nothing to do with that of another; ranks that have fewer repeat one.
    """
    ranks = [np.flatnonzero(np.array(placement) == rank) for rank in range(max(placement) + 1)]
    kept = []
    for stages in ranks:
        held = np.unique(in_flight[:, :, stages], axis=0)
        more = (held[:, None] <= held[None]).all((2, 3)) & ~np.eye(len(held), dtype=np.bool_)
        kept.append(held[~more.any(1)])
    result = np.zeros((max(map(len, kept)), *in_flight.shape[1:]))
    for stages, held in zip(ranks, kept, strict=True):
        result[:, :, stages] = held[np.minimum(np.arange(len(result)), len(held) - 1)]
    return result


def _on_stages(costs: Floats, modes: int, stages: int) -> Floats:
    return np.broadcast_to(costs, (modes, costs.shape[1], stages, costs.shape[3]))


def _summed(costs: Floats) -> Floats:
    return np.concatenate([np.zeros((*costs.shape[:-1], 1)), np.cumsum(costs, -1)], -1)
