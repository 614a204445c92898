"""Degrees of a serving replica, each a number or an array of numbers.

pp·cp·tp·attention_dp devices; with experts ep·etp = cp·tp·attention_dp. Ranks of attention_dp have sequences of their
own, and share the experts.
"""

from dataclasses import dataclass
from functools import reduce
from operator import mul

from meshwright.plans.serving.replica_layout import ReplicaLayout
from meshwright.program.local_shape import LocalShape, Number


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDegrees:
    """The degrees of ``ReplicaLayout`` for many replicas at once: arrays have one entry for each."""

    attention_dp: Number = 1
    tp: Number = 1
    pp: Number = 1
    cp: Number = 1
    ep: Number = 1
    etp: Number = 1

    @classmethod
    def of_layout(cls, layout: ReplicaLayout) -> "ReplicaDegrees":
        """Return the degrees of one replica of a plan."""
        return cls(
            attention_dp=layout.attention_dp,
            tp=layout.tp,
            pp=layout.pp,
            cp=layout.cp,
            ep=layout.ep,
            etp=layout.etp,
        )

    @property
    def devices(self) -> Number:
        """Devices of a replica."""
        return self.attention_dp * self.tp * self.pp * self.cp

    @property
    def shape(self) -> LocalShape:
        """Return the cuts of parameters on a rank."""
        return LocalShape(micro_batch=1, seq_len=1, cp=self.cp, tp=self.tp, ep=self.ep, etp=self.etp)

    def group_size(self, axes: tuple[str, ...]) -> Number:
        """Return the ranks of a group over axes of a Program, in which attention_dp is dp_replicate."""
        sizes = {"tp": self.tp, "cp": self.cp, "ep": self.ep, "dp_replicate": self.attention_dp}
        return reduce(mul, (sizes[axis] for axis in axes))
