"""The plan key ``offload``: activations and model states in host memory."""

from typing import Annotated, Literal, NamedTuple

from pydantic import Discriminator, Field, Tag

from meshwright.plans.files.strict_types import Strict, name_or_number
from meshwright.schedules.activation_offload import OffloadRule

MAX_AHEAD = 1000
NVME = "nvme"
"""A place of states that plans may name and this release refuses."""
NAMED_SHARES = {"none": 0.0, "all": 1.0, NVME: 1.0}
Share = Literal["none", "all", "nvme"] | float
StateShare = Annotated[
    Annotated[Literal["none", "all", "nvme"], Tag("<name>")]
    | Annotated[float, Field(ge=0, le=1), Tag("<number>")],
    Discriminator(name_or_number),
]
"""The part of a rank's own states of one kind."""


def share_number(share: Share | None) -> float:
    """Return a share as a number from 0 to 1; nothing is none."""
    if share is None:
        return 0.0
    return NAMED_SHARES[share] if isinstance(share, str) else float(share)


class HostShares(NamedTuple):
    """The shares of a rank's own optimizer states and parameters that are on its host, from 0 to 1."""

    optimizer: float = 0.0
    parameters: float = 0.0

    @property
    def some(self) -> bool:
        """Any state is on the host."""
        return self.optimizer > 0 or self.parameters > 0


class Offload(Strict):
    """Activations kept in host memory from their forward to their backward pass, and states that are there.

    ``activations``: of all layers, of a share of each stage's, or of none. They begin to come back ``ahead`` passes of
    their pipeline rank before they are needed. ``optimizer`` and ``parameters``: the share of each rank's own states
    whose home is the host; None is none. ``manager: chunks`` keeps all states in equal chunks that move between device
    and host (PatrickStar); ``chunk_mib`` is the size of a chunk of parameters; None, or ``auto``: with least waste.
    """

    activations: Annotated[
        Annotated[Literal["none", "all"], Tag("<name>")]
        | Annotated[float, Field(gt=0, le=1), Tag("<number>")],
        Discriminator(name_or_number),
    ] = "none"
    ahead: Annotated[int, Field(ge=1, le=MAX_AHEAD)] = 1
    optimizer: StateShare | None = None
    parameters: StateShare | None = None
    manager: Literal["chunks"] | None = None
    chunk_mib: (
        Annotated[
            Annotated[Literal["auto"], Tag("<name>")] | Annotated[float, Field(gt=0), Tag("<number>")],
            Discriminator(name_or_number),
        ]
        | None
    ) = None

    def __str__(self) -> str:
        ahead = f", {self.ahead} passes ahead" if self.ahead > 1 else ""
        states = {"optimizer": self.optimizer, "parameters": self.parameters}
        said = [f"{name} {_format(share)}" for name, share in states.items() if share_number(share)]
        if self.manager is not None:
            said.append(f"{self.manager} of {self.chunk_mib or 'auto'} MiB")
        if self.rule.share or not said:
            said.insert(0, f"{_format(self.activations)}{ahead}")
        return ", ".join(said)

    @property
    def word(self) -> str:
        """The activations as a command line has them: ``0.5,2``."""
        return f"{self.activations}" + (f",{self.ahead}" if self.ahead > 1 else "")

    @property
    def rule(self) -> OffloadRule:
        """The activations as the schedule's lists take them."""
        return OffloadRule(share_number(self.activations), self.ahead)

    @property
    def of_activations(self) -> "Offload":
        """The same without states."""
        return Offload(activations=self.activations, ahead=self.ahead)

    @property
    def shares(self) -> HostShares:
        """The shares of the states."""
        return HostShares(share_number(self.optimizer), share_number(self.parameters))


def _format(share: Share | None) -> str:
    return share if isinstance(share, str) else f"{share:g}"
