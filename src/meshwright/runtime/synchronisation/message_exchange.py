"""One message of a fragment on one rank: what it sends, the exchanges that have begun, and how results are applied.

With Δ = anchor − local, a parameter message sends Δ and ends with

    anchor ← outer(anchor, Δ̄);  local ← (1 − merge)·local + merge·anchor.

With ``own: fresh`` the outer optimizer gets w·Δ(now) + Δ̄(then) − w·Δ(then), with this rank's own Δ and its weight. A
moment has no anchor: its own values are sent, and local ← (1 − merge)·local + merge·mean.

Behind a step where both are due, an exchange begins before the one before it ends; so two may have begun.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.runtime.synchronisation.draw_key import DrawKey
from meshwright.runtime.synchronisation.encoded_sum import EncodedSum
from meshwright.runtime.synchronisation.leg import RunningExchange, Transport
from meshwright.runtime.synchronisation.outer import update_anchor

Tensors = list[torch.Tensor]


@dataclass
class BegunExchange:
    """An exchange that has not been applied; ``own``: w·Δ of this rank where it is needed again."""

    running: RunningExchange[Tensors] | None
    own: torch.Tensor | None
    mean: torch.Tensor | None = None

    def settle(self) -> torch.Tensor:
        """Wait for the result and return it, flat."""
        if self.mean is None:
            assert self.running is not None
            self.mean = torch.cat(self.running.finish())
            self.running = None
        return self.mean


@dataclass
class MessageExchange:
    """The exchanges of a message. ``anchor`` is flat, stretches one behind the other; None of a moment.

    ``moments`` are those of the outer optimizer, ``number`` counts its steps. ``padding`` are places of no tensor,
    which stay zero whatever a codec makes of them.
    """

    entry: Synchronisation
    sum: EncodedSum
    elements: Sequence[int]
    anchor: torch.Tensor | None
    moments: dict[str, torch.Tensor]
    number: torch.Tensor
    padding: torch.Tensor | None = None
    begun: list[BegunExchange] = field(default_factory=list)

    @property
    def fresh(self) -> bool:
        """Its own change of now counts for a rank, with those of the others from before."""
        return self.entry.own == "fresh"

    def begin(
        self, local: torch.Tensor, weights: Sequence[float], key: DrawKey, transport: Transport
    ) -> None:
        """Send this rank's values; exchanges that still run are completed first, since codecs keep states."""
        self.settle()
        value = local.clone() if self.anchor is None else self.anchor.to(local.device) - local
        own = value * weights[key.rank] if self.fresh else None
        pending = self.sum.begin(value.split(list(self.elements)), weights, key)
        self.begun.append(BegunExchange(RunningExchange(self.sum.legs(pending), transport), own))

    def end(self, local: torch.Tensor, *, empty: bool) -> torch.Tensor:
        """Apply the oldest exchange and return the new local values; ``empty``: nothing was sent a period before."""
        begun = None if empty else self.begun.pop(0)
        change = None if begun is None else self._without_padding(begun.settle())
        if self.anchor is None:
            return torch.lerp(local, local if change is None else change, float(self.entry.merge))
        if self.fresh:
            now, then = self.begun[-1].own, None if begun is None else begun.own
            assert now is not None
            change = now if change is None or then is None else now + (change - then)
        if change is not None:
            self._move_anchor(change)
        return torch.lerp(local, self.anchor.to(local.device), float(self.entry.merge))

    def _without_padding(self, values: torch.Tensor) -> torch.Tensor:
        return values if self.padding is None else values.masked_fill(self.padding, 0)

    def _move_anchor(self, change: torch.Tensor) -> None:
        assert self.anchor is not None
        self.number += 1
        change, outer = change.to(self.anchor.device), self.entry.outer_in_full
        update_anchor(outer, self.anchor, change, self.moments, int(self.number))

    def expect(self, count: int) -> None:
        """Make room for the results of so many exchanges that have begun, in place of all that there are."""

        setting, size = self.sum.setting, sum(self.elements)
        self.begun = []
        for _ in range(count):
            own = None
            if self.fresh and self.anchor is not None:
                own = torch.zeros(size, dtype=self.anchor.dtype, device=setting.device)
            mean = torch.zeros(size, dtype=setting.real, device=setting.device)
            self.begun.append(BegunExchange(None, own, mean))

    def settle(self) -> None:
        """Wait for the results of all exchanges that have begun."""
        for one in self.begun:
            one.settle()
