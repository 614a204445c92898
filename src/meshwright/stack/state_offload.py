"""A way in which a stack keeps model states in host memory: a row of its ``state_offloads``."""

from typing import Literal

from meshwright.plans.forms.host_offload import HostShares
from meshwright.stack.file_row import FileRow

HostShare = Literal["none", "all", "share"]


class StateOffload(FileRow):
    """The states on the host, all or any share of them, and the shardings that this runs with (none: any).

    ``alone``: also where nothing is sharded because one rank has a state alone.
    """

    optimizer: HostShare = "none"
    parameters: HostShare = "none"
    shardings: tuple[Literal["none", "zero1", "zero2", "zero3"], ...] = ()
    alone: bool = False

    def has(self, shares: HostShares) -> bool:
        """Return true for shares that this way can do under some sharding."""
        return _can(self.optimizer, shares.optimizer) and _can(self.parameters, shares.parameters)

    def has_part(self, name: str, share: float) -> bool:
        """Return true for a share of one kind of state, whatever is done with the other."""
        return _can(getattr(self, name), share)

    def runs_with(self, sharding: str, *, alone: bool = False) -> bool:
        """Return true for a sharding that this way runs with; ``alone``: no rank shares or repeats a state."""
        return (
            not self.shardings or sharding in self.shardings or (self.alone and alone and sharding == "none")
        )


def _can(able: HostShare, share: float) -> bool:
    return share in {"none": (0.0,), "all": (1.0,)}[able] if able != "share" else share > 0
