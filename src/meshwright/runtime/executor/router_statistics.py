"""Collect statistics of routed layers during a step: balancing losses, and the tokens of each expert.

Both are computed once for each micro-batch, with the gradient of the layer's input. After a step the loads move the
correction biases that are stored with routers: up for experts below the mean load, down for those above
(``model/router.py``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch


@dataclass
class RouterStatistics:
    """Router statistics of one rank. ``loss`` is the sum of its layers' balancing losses.

    ``loads`` are the choices of each layer by its correction's name. Corrections move by ``speed``; ``sizes`` are
    those of the whole model, by name. ``seen`` counts, over all steps so far, how often tokens chose both of two
    experts, and on the diagonal each one; ``dropped`` counts the choices that exceeded capacity.
    """

    speed: float = 0.0
    sizes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    loss: torch.Tensor | float = 0.0
    loads: dict[str, torch.Tensor] = field(default_factory=dict)
    seen: dict[str, torch.Tensor] = field(default_factory=dict)
    dropped: torch.Tensor | int = 0

    def begin_step(self) -> None:
        """Reset the loss and loads of the previous step."""
        self.loss = 0.0
        self.loads.clear()

    def count(self, layer: str, chosen: torch.Tensor, experts: int, dropped: torch.Tensor | int) -> None:
        """Count a micro-batch's choices, (tokens, chosen), among ``experts`` experts, and its dropped choices."""
        self.dropped = self.dropped + dropped
        both = chosen[:, :, None] * experts + chosen[:, None, :]
        pairs = torch.bincount(both.flatten(), minlength=experts**2).view(experts, experts)
        for counts, found in ((self.loads, pairs.diagonal()), (self.seen, pairs)):
            counts[layer] = counts.get(layer, 0) + found

    def table(self) -> torch.Tensor:
        """Return this rank's choices of the step, one row per correction of the model."""
        return load_rows(self.loads, self.sizes)

    def move(self, corrections: Mapping[str, torch.Tensor], everyones: torch.Tensor) -> None:
        """Move this rank's corrections by the summed table of all ranks."""
        rows = dict(zip(self.sizes, everyones.double(), strict=True))
        for name, correction in corrections.items():
            correction += self.speed * torch.sign(rows[name].mean() - rows[name]).to(correction)


def load_rows(counts: Mapping[str, torch.Tensor], sizes: Mapping[str, tuple[int, ...]]) -> torch.Tensor:
    """Return one row of counts per name; zeros for layers of other ranks."""
    none = {name: torch.zeros(size, dtype=torch.int64) for name, size in sizes.items()}
    return torch.stack([counts.get(name, none[name]).cpu() for name in sizes])
