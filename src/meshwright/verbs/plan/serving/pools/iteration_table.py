"""Seconds of decoding by sequences as a table for each design, in place of the operators of an iteration.

A design's row has ``POINTS`` numbers of sequences at equal ratios up to its most; between two of them seconds are
interpolated linearly. It stands in for ``PhaseTimes`` in a ``PoolPair`` where very many pairs are compared; what is
left of them is evaluated with the operators.
"""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.serving.phase_times import PhaseTimes
from meshwright.cost.serving.replica_load import ReplicaLoad
from meshwright.program.local_shape import Number

Floats = NDArray[np.float64]
POINTS = 40
LEAST = 1 / 16
"""Sequences at the beginning of a row."""
UNCERTAIN = 1.005
"""Factor by which a figure that comes of a table may be wrong."""


@dataclass(frozen=True, slots=True, eq=False)
class DecodeTable:
    """Seconds of an iteration of each design at ``POINTS`` numbers of sequences from ``LEAST`` to ``most``."""

    most: Floats
    seconds: NDArray[np.float64]

    @classmethod
    def of(cls, phases: PhaseTimes, most: Floats) -> "DecodeTable":
        """Return the table of designs whose phases are given."""
        shares = np.arange(POINTS)[:, None] / (POINTS - 1)
        top = np.maximum(most, 2 * LEAST)
        batches = LEAST * (top / LEAST) ** shares
        return cls(top, np.broadcast_to(phases.decode_s(batches), batches.shape))

    def at(self, design: NDArray[np.int64], batch: Floats) -> Floats:
        """Return the seconds where ``batch`` sequences decode in each of some designs."""
        ratio = np.log(self.most[design] / LEAST) / (POINTS - 1)
        place = np.log(np.maximum(batch, LEAST) / LEAST) / ratio
        low = np.clip(place.astype(np.int64), 0, POINTS - 2)
        begin, end = LEAST * np.exp(low * ratio), LEAST * np.exp((low + 1) * ratio)
        share = np.clip((np.maximum(batch, LEAST) - begin) / (end - begin), 0.0, 1.0)
        return self.seconds[low, design] * (1 - share) + self.seconds[low + 1, design] * share


@dataclass(frozen=True, slots=True, eq=False)
class TabulatedDecoding:
    """The part of ``PhaseTimes`` that a pair of pools asks of its decoding pool."""

    table: DecodeTable
    design: NDArray[np.int64]
    load: ReplicaLoad
    limits: Any

    @property
    def steps(self) -> Floats:
        """Tokens of a request that are decoded after the first one."""
        return np.asarray(self.load.output_tokens) - 1.0

    def decode_s(self, batch: Number) -> Number:
        """Return the seconds of an iteration."""
        return self.table.at(self.design, np.asarray(batch, float))


@dataclass(frozen=True, slots=True, eq=False)
class KnownPrefill:
    """The part of ``PhaseTimes`` that a pair of pools asks of its prefill pool: seconds that depend on no batch."""

    full_s: Floats
    own_s: Floats

    def at(self, batch: Any) -> Any:
        """Return the seconds of a prompt by itself."""
        return SimpleNamespace(own_s=self.own_s)
