"""Who has a place at an expert of limited capacity, and the rows that are sent then (``workload/capacity.py``).

Where the ranks of cp and tp have parts of one scope they tell each other what their tokens chose, and with what
weights: few numbers, which are no part of the Program. All of them find the same places.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from meshwright.model.operators import Dispatch
from meshwright.runtime.choice_counts import summed
from meshwright.runtime.communicator import SEQUENCE_RANKS
from meshwright.runtime.kernels.kernel import Setting
from meshwright.workload.capacity import Capacity


class Sent(NamedTuple):
    """``order`` as of ``Routes``, with the number behind the last choice where nobody took a place; rows by expert."""

    order: torch.Tensor
    counts: torch.Tensor


@dataclass(frozen=True)
class Admission:
    """The places of a layer's experts."""

    op: Dispatch
    setting: Setting
    capacity: Capacity

    def sent(self, experts: torch.Tensor, weights: torch.Tensor, batch: int) -> Sent:
        """What goes to the experts that tokens chose, (tokens, chosen); of one position sequence by sequence."""
        tokens, flat = len(experts), experts.flatten()
        rows = self.admitted(experts, weights, batch).flatten().nonzero()[:, 0]
        chosen = flat[rows]
        if self.capacity.pad:
            scope = self.capacity.scope_tokens(tokens, self._length, batch)
            places = self._places(scope) * tokens // scope
            empty = places - chosen.bincount(minlength=self.op.experts)
            every = torch.arange(self.op.experts, device=flat.device)
            chosen = torch.cat([chosen, every.repeat_interleave(empty)])
            rows = torch.cat([rows, rows.new_full((int(empty.sum()),), len(flat))])
        return Sent(rows[chosen.argsort(stable=True)], chosen.bincount(minlength=self.op.experts))

    def admitted(self, experts: torch.Tensor, weights: torch.Tensor, batch: int) -> torch.Tensor:
        """Which choices have a place: (tokens, chosen)."""
        worth = weights.float() if self.capacity.drop == "probs" else torch.zeros_like(weights).float()
        own = None
        if self.capacity.scope != "rank" and len(self.setting.communicator.ranks_of(SEQUENCE_RANKS)) > 1:
            own = self._own(len(experts), batch)
            table = worth.new_zeros((self._length * batch, 2, self.op.experts_per_token))
            table[own] = torch.stack([experts.to(worth), worth], 1)
            table = summed(self.setting.communicator, table, SEQUENCE_RANKS)
            experts, worth = table[:, 0].to(experts), table[:, 1]
        tokens = torch.arange(len(experts), device=experts.device)
        scopes = tokens % batch if self.capacity.scope == "sequence" else torch.zeros_like(tokens)
        places = self._places(self.capacity.scope_tokens(len(experts), self._length, batch))
        kept = first_places(scopes[:, None] * self.op.experts + experts, worth, places)
        return kept if own is None else kept[own]

    def _places(self, tokens: int) -> int:
        return self.capacity.places(tokens, self.op.experts, self.op.experts_per_token)

    @cached_property
    def _length(self) -> int:
        return int(self.setting.shape.seq_len)

    def _own(self, tokens: int, batch: int) -> torch.Tensor:
        """Where this rank's tokens are among those of all its sequences."""
        held, here = tokens // batch, self.setting.positions
        first = self.setting.tp_rank * held if self.setting.sequence_parallel else 0
        sequences = torch.arange(batch, device=here.device)
        return (here[first : first + held, None] * batch + sequences).flatten()


def first_places(queues: torch.Tensor, worth: torch.Tensor, places: int) -> torch.Tensor:
    """Of the choices that stand in each queue those worth most, and among equal ones the first: (tokens, chosen)."""
    order = worth.flatten().argsort(descending=True, stable=True)
    order = order[queues.flatten()[order].argsort(stable=True)]
    waiting = queues.flatten()[order]
    kept = torch.zeros_like(waiting, dtype=torch.bool)
    begins = torch.searchsorted(waiting, waiting)
    kept[order] = torch.arange(len(waiting), device=waiting.device) - begins < places
    return kept.view_as(queues)
