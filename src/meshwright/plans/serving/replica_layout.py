"""The degrees of a replica: pp·cp·tp·attention_dp devices, and the experts' mesh over the ranks of a stage.

Every attention_dp rank holds the cache of its own sequences; experts lie on ep·etp = cp·tp·attention_dp ranks.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaLayout:
    """Degrees of parallelism of one replica. ``ep`` and ``etp`` are 1 for a model without experts."""

    attention_dp: int = 1
    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 1

    @property
    def stage_ranks(self) -> int:
        """Devices of a pipeline stage: cp·tp·attention_dp."""
        return self.cp * self.tp * self.attention_dp

    @property
    def devices(self) -> int:
        """Devices of a replica: pp·cp·tp·attention_dp."""
        return self.pp * self.stage_ranks
