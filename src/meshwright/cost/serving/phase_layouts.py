"""Steady state of a replica whose phases have layouts of their own, in turns (Seesaw, arXiv 2503.06433).

In a cycle the devices prefill B sequences in one layout, change their weights to the other, decode all of them, and
change back. Caches wait in the host's memory: each prompt's goes out while later ones are computed, and comes in when
its sequence gets a place among the b that decode at once. With W = B/b waves and an iteration of t_d(b):

    C = B·t_p + fill + t_change + D + t_back,     X = B/C
    t_p  = max(full, out),    fill = own − t_p,    D = b·in + max(W·(osl − 1)·t_d(b), (B − b)·in)
    change = bytes of weights that a device lacks / host link (``program/serving/weight_reshard.py``)

``full`` and ``own`` seconds of a prompt are those of ``phase_times.py``, the latter with the engine's seconds of a
prompt; ``out`` and ``in`` those of a sequence's cache on the host link of the busiest device. A request has its first
token when its prefill ends, so that all waiting for the change and for a place is time of further tokens:

    (osl − 1)·TPOT = (B − 1)/2·t_p + t_change + b·in + (D − b·in)·(W + 1)/2W

Equal sequences decode in whole waves. B is either all that there is, in ⌈B/b⌉ waves of equal size, or the most that
whole full waves take, whichever serves more. Closed loop of N clients: B = N, at most what the host's memory takes;
TTFT = N/X − (osl − 1)·TPOT. Open arrivals at X: the smallest B with B/C = X, which those of the cycle before are:

    TTFT = busy·C/2 + (B − 1)/2·t_p + own,     busy = min(1, X·C/B)

below one sequence a cycle B is 1 and the replica waits in the layout of prefill. Above the X of the largest B is no
steady state (``capacity``). As B grows X tends to 1/(t_p + max((osl − 1)·t_d(b)/b, in)), the bound of both phases.

Assumed: the host has a copy of all weights; old weights are freed as new ones come; all caches of a cycle are buffered
and none stays on the device. Ignored: the bandwidth of the host's memory, as with offload in training; sequences that
swap while they decode; that a shared prefix need not move with every sequence.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.disaggregated import DecodeTimes, PrefillTimes
from meshwright.cost.serving.monotone_root import increasing_root
from meshwright.cost.serving.steady_state import SteadyState, limit_name
from meshwright.program.local_shape import Number

NEAR = 1e-9
HALF = 0.5


class HostCopies(NamedTuple):
    """Seconds on the host links of a replica's devices: of a sequence's cache out and in, and of weights both ways."""

    out_s: Number = 0.0
    in_s: Number = 0.0
    change_s: Number = 0.0
    back_s: Number = 0.0


NO_COPIES = HostCopies()


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseCycle:
    """A replica that prefills and decodes in turns, under its own load.

    ``buffer_sequences`` have room for their caches in the host's memory. ``prompt_s``: an engine's seconds outside
    iterations for a prompt.
    """

    prefill: PrefillTimes
    decode: DecodeTimes
    copies: HostCopies = NO_COPIES
    buffer_sequences: Number = np.inf
    prompt_s: float = 0.0

    @property
    def prompt_full_s(self) -> NDArray[Any]:
        """Seconds that each further prompt adds to the prefill of a cycle."""
        return np.maximum(self.prefill.full_s, self.copies.out_s)

    @property
    def prompt_own_s(self) -> NDArray[Any]:
        """Seconds of a prompt by itself."""
        own = np.asarray(self.prefill.at(np.zeros_like(self.prompt_full_s)).own_s)
        return np.maximum(own, self.prompt_full_s) + self.prompt_s

    @property
    def once_s(self) -> NDArray[Any]:
        """Seconds of a cycle that do not grow with its sequences."""
        return self.prompt_own_s - self.prompt_full_s + self.copies.change_s + self.copies.back_s

    @property
    def places(self) -> NDArray[Any]:
        """The most sequences that decode at once."""
        return np.maximum(self.decode.limits.sequences, 1.0)

    def turn(self, sequences: Number, waves: Number) -> "Turn":
        """Return a cycle of some sequences that decode in equal waves."""
        at_once = sequences / np.asarray(waves, float)
        first = at_once * np.asarray(self.copies.in_s)
        steps = np.asarray(waves * np.asarray(self.decode.steps) * self.decode.decode_s(at_once))
        further = np.maximum(steps, (sequences - at_once) * np.asarray(self.copies.in_s))
        return Turn(
            sequences=np.asarray(sequences, float),
            waves=np.asarray(waves, float),
            at_once=at_once,
            prefill_s=np.asarray(sequences * self.prompt_full_s + self.prompt_own_s - self.prompt_full_s),
            change_s=np.asarray(self.copies.change_s),
            back_s=np.asarray(self.copies.back_s),
            fetch_s=first,
            waves_s=further,
            compute_s=np.asarray(sequences * np.asarray(self.prefill.full_s) + steps),
        )

    def best_turn(self, sequences: Number) -> "Turn":
        """Return the cycle of at most so many sequences that serves most: all of them, or whole full waves."""
        whole = np.maximum(np.floor(sequences / self.places * (1 + NEAR)), 1.0)
        every = np.maximum(np.ceil(sequences / self.places * (1 - NEAR)), 1.0)
        full, equal = (
            self.turn(np.minimum(whole * self.places, sequences), whole),
            self.turn(sequences, every),
        )
        return full.where(full.requests_per_s >= equal.requests_per_s, equal)

    @property
    def most_per_s(self) -> NDArray[Any]:
        """Requests/s with the largest buffer: the bound of both phases where it has no end."""
        cap = np.asarray(self.buffer_sequences, float)
        known = self.best_turn(np.where(np.isinf(cap), 1.0, np.maximum(cap, 1.0))).requests_per_s
        steps = np.asarray(self.decode.steps) * self.decode.decode_s(self.places) / self.places
        bound = 1 / (self.prompt_full_s + np.maximum(steps, self.copies.in_s))
        return np.asarray(np.where(np.isinf(cap), bound, known))


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A cycle: its sequences and waves, the sequences of a wave, and seconds of its parts.

    ``fetch_s``: until the caches of the first wave are in; ``waves_s``: from there until the last sequence is done.
    ``compute_s``: of all parts in which the devices compute.
    """

    sequences: NDArray[Any]
    waves: NDArray[Any]
    at_once: NDArray[Any]
    prefill_s: NDArray[Any]
    change_s: NDArray[Any]
    back_s: NDArray[Any]
    fetch_s: NDArray[Any]
    waves_s: NDArray[Any]
    compute_s: NDArray[Any]

    @property
    def cycle_s(self) -> NDArray[Any]:
        """Seconds of the cycle."""
        return self.prefill_s + self.change_s + self.fetch_s + self.waves_s + self.back_s

    @property
    def requests_per_s(self) -> NDArray[Any]:
        """Requests of a cycle over its seconds."""
        return self.sequences / self.cycle_s

    def where(self, own: NDArray[np.bool_], other: "Turn") -> "Turn":
        """Return these numbers where ``own`` is true, and those of another cycle elsewhere."""
        names = self.__dataclass_fields__
        return Turn(**{name: np.where(own, getattr(self, name), getattr(other, name)) for name in names})


class CycleState(NamedTuple):
    """The steady state of a replica, its cycle, and the most requests/s."""

    steady: SteadyState
    turn: Turn
    most_per_s: NDArray[Any]


def cycle_state(cycle: PhaseCycle) -> CycleState:
    """Return the steady state of replicas whose requests write more than one token."""
    load = cycle.decode.load
    arrays = (load.concurrency, load.rate_per_s, cycle.buffer_sequences, cycle.places, cycle.most_per_s)
    clients, rate, buffer, places, most = np.broadcast_arrays(*(np.asarray(x, float) for x in arrays))
    closed, largest = np.isnan(rate), np.maximum(buffer, 1.0)
    overloaded = ~closed & (rate > most * (1 + NEAR))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        of_clients = cycle.best_turn(np.clip(np.where(closed, clients, 1.0), 1.0, largest))
        endless = np.where(np.isinf(largest), places, largest)
        turn = of_clients.where(closed, _arriving(cycle, np.where(overloaded | closed, most, rate), endless))
        turn = turn.where(~overloaded, cycle.best_turn(endless))
        requests = turn.requests_per_s * np.where(closed, np.minimum(clients, 1.0), 1.0)
        requests = np.where(closed, requests, np.minimum(rate, most))
        steps = np.asarray(cycle.decode.steps, float)
        waiting = (turn.sequences - 1) * HALF * cycle.prompt_full_s
        further = waiting + turn.change_s + turn.fetch_s + turn.waves_s * (turn.waves + 1) / (2 * turn.waves)
        busy = np.minimum(requests * turn.cycle_s / turn.sequences, 1.0)
        arriving = busy * turn.cycle_s * HALF + waiting + cycle.prompt_own_s
        first = np.where(closed, clients / requests - further, arriving)
    no_end = overloaded & np.isinf(largest)
    return CycleState(
        SteadyState(
            ttft_s=np.where(overloaded, np.nan, first),
            tpot_s=np.where(no_end, np.nan, further / steps),
            requests_per_s=requests,
            batch=turn.at_once,
            limited_by=_limit(cycle, turn, overloaded & ~np.isinf(rate)),
        ),
        turn,
        most,
    )


def _arriving(cycle: PhaseCycle, rate: NDArray[Any], largest: NDArray[Any]) -> Turn:
    """Return the shortest cycle that serves arrivals at a rate; ``largest``: its sequences where they have an end."""
    places, steps = cycle.places, np.asarray(cycle.decode.steps) * cycle.decode.decode_s(cycle.places)
    fetch, full = np.asarray(cycle.copies.in_s), cycle.prompt_full_s
    by_compute = rate * (cycle.once_s + places * fetch) / (places - rate * (places * full + steps))
    by_links = rate * cycle.once_s / (places * (1 - rate * (full + fetch)))
    waves = np.ceil(np.maximum(by_compute, by_links) * (1 - NEAR))
    waves = np.where(np.isfinite(waves) & (waves >= 1), waves, 1.0)
    limit = np.isfinite(np.asarray(cycle.buffer_sequences, float))
    waves = np.where(limit, np.minimum(waves, np.maximum(np.ceil(largest / places * (1 - NEAR)), 1.0)), waves)
    upper = np.where(limit, np.minimum(waves * places, largest), waves * places)
    lower = np.minimum(np.maximum((waves - 1) * places, 1.0), upper)
    found = increasing_root(lambda n: cycle.turn(n, waves).requests_per_s, rate, upper, lower)
    return cycle.turn(found, waves)


def _limit(cycle: PhaseCycle, turn: Turn, overloaded: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the name of the limit: links of the host where devices wait for them for most of a cycle."""
    full_up = turn.at_once >= cycle.places * (1 - NEAR)
    named = limit_name(cycle.decode.limits, full_up, overloaded)
    return np.where((turn.compute_s < HALF * turn.cycle_s) & ~overloaded, "handover", named)
