"""Pairs of designs that prefill and that decode, with the seconds that bound what a pair can do.

R_p replicas that prefill and R_d that decode carry X requests/s only if R_p ≥ X·full and R_d ≥ X/x, with x the requests
of a decoding replica at its most sequences. So G devices carry X ≤ G/(g_p·full + g_d/x), and a request takes at least
its prefill, the way of its cache, and its tokens one by one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.kv_transfers import cache_transfer
from meshwright.cost.serving.phase_times import PhaseTimes
from meshwright.verbs.plan.serving.pools.iteration_table import DecodeTable, KnownPrefill
from meshwright.verbs.plan.serving.pools.load_capacity import LIGHTEST, most_sequences
from meshwright.verbs.plan.serving.pools.load_limits import LoadLimits
from meshwright.verbs.plan.serving.pools.replica_designs import ReplicaDesigns

Floats = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PrefillSide:
    """Designs that prefill, with the seconds of a prompt among others and by itself."""

    designs: ReplicaDesigns
    full_s: Floats
    own_s: Floats

    @classmethod
    def of(cls, designs: ReplicaDesigns, limits: LoadLimits, *, all_of_them: bool = False) -> "PrefillSide":
        """Return the designs and their seconds, without designs that others of equal devices and links beat.

        ``all_of_them``: with those. Where decoding may hold a sequence and a part of another one in the mean, slower
        prefill keeps it there, and ``max_sequences`` cannot.
        """
        phases, _ = designs.phases(limits.shape)
        full = np.broadcast_to(phases.full_s, (len(designs),)).astype(float)
        own = np.broadcast_to(phases.at(np.zeros(len(designs))).own_s, (len(designs),)).astype(float)
        alike = (designs.devices, designs.cache_links)
        beaten = np.zeros(len(designs), dtype=np.bool_)
        better = (
            (full[:, None] <= full) & (own[:, None] <= own) & ((full[:, None] < full) | (own[:, None] < own))
        )
        for column in alike:
            better &= column[:, None] == column
        beaten |= better.any(axis=0)
        rows = np.flatnonzero(~beaten | all_of_them)
        return cls(designs.take(rows), full[rows], own[rows])


@dataclass(frozen=True, slots=True, eq=False)
class DecodeSide:
    """Designs that decode, with the most sequences of each.

    ``most``: sequences within the limit on TPOT; ``cap``: whole ones, equally many in each batch. ``requests_per_s``:
    at the most; ``least_tpot_s``: of one sequence. ``slowed``: the limit on TPOT, not room, sets it.
    """

    designs: ReplicaDesigns
    phases: PhaseTimes
    most: Floats
    cap: Floats
    slowed: NDArray[np.bool_]
    requests_per_s: Floats
    least_tpot_s: Floats
    table: DecodeTable

    @classmethod
    def of(cls, designs: ReplicaDesigns, limits: LoadLimits) -> "DecodeSide":
        """Return the designs that decode within the limit."""
        phases, _ = designs.phases(limits.shape)
        most = most_sequences(phases, limits.tpot_s, mixed=False)
        ranks = designs.batches
        cap = np.floor(most * (1 + 1e-12) / ranks) * ranks
        rows = np.flatnonzero(most > 0)
        kept = designs.take(rows)
        phases, _ = kept.phases(limits.shape)
        slowed = most[rows] < np.asarray(phases.limits.sequences) * (1 - 1e-9)
        requests = most[rows] / (limits.steps * np.asarray(phases.decode_s(most[rows])))
        least = np.asarray(phases.decode_s(np.full(len(rows), LIGHTEST)))
        table = DecodeTable.of(phases, most[rows])
        return cls(kept, phases, most[rows], cap[rows].astype(float), slowed, requests, least, table)


@dataclass(frozen=True, slots=True, eq=False)
class PoolPairs:
    """Pairs of designs, a row each, that a cluster has room for and whose first token can be in time."""

    prefill: Rows
    decode: Rows
    hand_over_s: Floats
    sent_per_s: Floats
    received_per_s: Floats
    devices_per_rate: Floats
    least_latency_s: Floats

    @classmethod
    def of(cls, fill: PrefillSide, write: DecodeSide, limits: LoadLimits, devices: int) -> "PoolPairs":
        """Return all pairs that are in question on so many devices."""
        served = fill.designs.family.served
        fill_degrees, write_degrees = fill.designs.pool().degrees, write.designs.pool().degrees
        sizes, links = (
            (fill.designs.devices[:, None], write.designs.devices),
            (fill.designs.cache_links[:, None], write.designs.cache_links),
        )
        sender = type(fill_degrees)(tp=links[0].astype(float), attention_dp=sizes[0] / links[0])
        receiver = type(write_degrees)(tp=links[1].astype(float), attention_dp=sizes[1] / links[1])
        prompt_tokens = limits.lengths.mean_input
        way = cache_transfer(
            served.model, served.times, prompt_tokens, fill.designs.family.storage, sender, receiver
        )
        first = served.waiting.prompt_s + fill.own_s[:, None] + way.seconds
        need = sizes[0] * fill.full_s[:, None] + sizes[1] / write.requests_per_s
        least = first + limits.steps * write.least_tpot_s
        possible = (first <= limits.ttft_s) & (sizes[0] + sizes[1] <= devices)
        prefill, decode = np.nonzero(possible)
        sent, received = (np.broadcast_to(x, need.shape) for x in (way.sent_per_s, way.received_per_s))
        moved = (way.seconds[possible], sent[possible], received[possible])
        return cls(prefill, decode, *moved, need[possible], least[possible])

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.prefill)

    def take(self, rows: Rows) -> "PoolPairs":
        """Return the pairs at some rows."""
        return PoolPairs(*(getattr(self, name)[rows] for name in PoolPairs.__slots__))


def known_prefill(fill: PrefillSide, rows: Rows) -> KnownPrefill:
    """Return the seconds of prompts in designs at some rows."""
    return KnownPrefill(fill.full_s[rows], fill.own_s[rows])
