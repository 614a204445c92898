"""A stored stretch: a contiguous part of a tensor, its name in a file, and where it is in memory."""

from dataclasses import dataclass

import torch

from meshwright.program.rank_units.unit_layout import Tensor


@dataclass(frozen=True)
class Stretch:
    """A stored part of a tensor. ``memory`` is this rank's own, in one part or, where some of it is on the host, two.

    ``owner`` is the rank whose file holds it. ``scale`` is the memory of what its values were divided by.
    """

    state: str
    tensor: Tensor
    start: int
    owner: int
    memory: tuple[torch.Tensor, ...]
    scale: torch.Tensor | None = None

    @property
    def length(self) -> int:
        """The number of elements."""
        return sum(map(len, self.memory))

    @property
    def values(self) -> torch.Tensor:
        """The values; a copy where the memory has two parts."""
        if len(self.memory) == 1:
            return self.memory[0]
        return torch.cat([part.to(self.memory[-1].device) for part in self.memory])

    def set(self, values: torch.Tensor) -> None:
        """Copy values into the memory."""
        if len(self.memory) == 1:
            self.memory[0].copy_(values)
            return
        for part, given in zip(self.memory, values.split([len(part) for part in self.memory]), strict=True):
            part.copy_(given)

    @property
    def place(self) -> str:
        """The parameter's name and this rank's cut of it."""
        t = self.tensor
        return f"{t.name}/" + (",".join(map(str, t.cuts)) or "whole")

    @property
    def name(self) -> str:
        """The stretch's name in a file."""
        return f"{self.state}/{self.place}/{self.start}-{self.start + self.length}"
