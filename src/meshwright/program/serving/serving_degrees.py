"""Degrees of a serving replica, each a number or an array of numbers.

pp·cp·tp·attention_dp devices; with experts ep·etp = cp·tp·attention_dp. Ranks of attention_dp have sequences of their
own, and share the experts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np

from meshwright.program.local_shape import LocalShape, Number


class Degrees(Protocol):
    """Six degrees of parallelism, as a plan's layout has them."""

    attention_dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    etp: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDegrees:
    """Degrees of replicas. Arrays have one entry for each replica."""

    attention_dp: Number = 1
    tp: Number = 1
    pp: Number = 1
    cp: Number = 1
    ep: Number = 1
    etp: Number = 1

    @classmethod
    def of(cls, layouts: Sequence[Degrees]) -> "ReplicaDegrees":
        """Return the degrees of several layouts as arrays."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.array([getattr(layout, name) for layout in layouts]) for name in names})

    @property
    def devices(self) -> Number:
        """Devices of a replica."""
        return self.attention_dp * self.tp * self.pp * self.cp

    @property
    def shape(self) -> LocalShape:
        """Return the cuts of parameters on a rank."""
        return LocalShape(micro_batch=1, seq_len=1, cp=self.cp, tp=self.tp, ep=self.ep, etp=self.etp)
