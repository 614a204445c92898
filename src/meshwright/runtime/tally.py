"""What routed layers find in a step beside their results: balancing losses, and how many tokens each expert got.

Both are found once for each micro-batch, with the gradient of the layer's input. After a step the numbers move the
corrections that are stored with routers: more for experts of less than mean load, less for those of more
(``model/routing.py``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch


@dataclass
class Tally:
    """``loss`` is the sum over the rank's routed layers, ``loads`` the choices of each by its correction's name.

    Corrections move by ``speed``; ``sizes`` are those of the whole model, by name. ``seen`` is how often tokens of all
    steps so far chose both of two experts, on the diagonal how often they chose each; ``dropped`` is how many of these
    choices found no place.
    """

    speed: float = 0.0
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    loss: torch.Tensor | float = 0.0
    loads: dict[str, torch.Tensor] = field(default_factory=dict)
    seen: dict[str, torch.Tensor] = field(default_factory=dict)
    dropped: torch.Tensor | int = 0

    def begin_step(self) -> None:
        """Forget the last step."""
        self.loss = 0.0
        self.loads.clear()

    def count(self, layer: str, chosen: torch.Tensor, experts: int, dropped: torch.Tensor | int) -> None:
        """Add what the tokens of a micro-batch chose, (tokens, chosen), of so many experts, and how much is dropped."""
        self.dropped = self.dropped + dropped
        both = chosen[:, :, None] * experts + chosen[:, None, :]
        pairs = torch.bincount(both.flatten(), minlength=experts**2).view(experts, experts)
        for counts, found in ((self.loads, pairs.diagonal()), (self.seen, pairs)):
            counts[layer] = counts.get(layer, 0) + found

    def table(self) -> torch.Tensor:
        """A row of this rank's choices of the step for each correction of the model."""
        return rows_of(self.loads, self.sizes)

    def move(self, corrections: Mapping[str, torch.Tensor], everyones: torch.Tensor) -> None:
        """Move this rank's corrections by such a table of all ranks together."""
        rows = dict(zip(self.sizes, everyones.double(), strict=True))
        for name, correction in corrections.items():
            correction += self.speed * torch.sign(rows[name].mean() - rows[name]).to(correction)


def rows_of(counts: Mapping[str, torch.Tensor], sizes: Mapping[str, tuple[int, ...]]) -> torch.Tensor:
    """A row of a rank's choices for each of some names; zeros for layers of other ranks."""
    none = {name: torch.zeros(size, dtype=torch.int64) for name, size in sizes.items()}
    return torch.stack([counts.get(name, none[name]).cpu() for name in sizes])
