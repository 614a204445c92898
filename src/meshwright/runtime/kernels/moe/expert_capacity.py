"""Admit choices to experts of limited capacity, and list the rows that are sent (``workload/expert_capacity.py``).

If cp and tp ranks hold parts of one scope, they exchange their tokens' choices and weights: few numbers, which the
Program does not count. All of them then admit the same choices.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch

from meshwright.model.operators.operator_types import Dispatch
from meshwright.runtime.comm.process_groups import SEQUENCE_RANKS
from meshwright.runtime.comm.routing_count_exchange import sum_router_counts
from meshwright.runtime.kernels.kernel import Setting
from meshwright.workload.expert_capacity import Capacity


class Sent(NamedTuple):
    """Admitted rows: ``order`` as in ``TokenPermutation``, and ``counts`` by expert.

    An empty place has the number after the last choice.
    """

    order: torch.Tensor
    counts: torch.Tensor


@dataclass(frozen=True)
class Admission:
    """The capacity rule of a layer's experts."""

    op: Dispatch
    setting: Setting
    capacity: Capacity

    def sent(self, experts: torch.Tensor, weights: torch.Tensor, batch: int) -> Sent:
        """Return the rows to send for the chosen experts, (tokens, chosen).

        Tokens are ordered by position, then by sequence.
        """
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
        """Return a mask of admitted choices: (tokens, chosen)."""
        worth = weights.float() if self.capacity.drop == "probs" else torch.zeros_like(weights).float()
        own = None
        if self.capacity.scope != "rank" and len(self.setting.communicator.ranks_of(SEQUENCE_RANKS)) > 1:
            own = self._own(len(experts), batch)
            table = worth.new_zeros((self._length * batch, 2, self.op.experts_per_token))
            table[own] = torch.stack([experts.to(worth), worth], 1)
            table = sum_router_counts(self.setting.communicator, table, SEQUENCE_RANKS)
            experts, worth = table[:, 0].to(experts), table[:, 1]
        tokens = torch.arange(len(experts), device=experts.device)
        scopes = tokens % batch if self.capacity.scope == "sequence" else torch.zeros_like(tokens)
        places = self._places(self.capacity.scope_tokens(len(experts), self._length, batch))
        kept = admitted_choices(scopes[:, None] * self.op.experts + experts, worth, places)
        return kept if own is None else kept[own]

    def _places(self, tokens: int) -> int:
        return self.capacity.places(tokens, self.op.experts, self.op.experts_per_token)

    @cached_property
    def _length(self) -> int:
        return int(self.setting.shape.seq_len)

    def _own(self, tokens: int, batch: int) -> torch.Tensor:
        """Return the indices of this rank's tokens among those of all its sequences."""
        held, here = tokens // batch, self.setting.positions
        first = self.setting.tp_rank * held if self.setting.sequence_parallel else 0
        sequences = torch.arange(batch, device=here.device)
        return (here[first : first + held, None] * batch + sequences).flatten()


def admitted_choices(queues: torch.Tensor, worth: torch.Tensor, places: int) -> torch.Tensor:
    """Return a mask of each queue's ``places`` choices of largest worth, the earlier first: (tokens, chosen)."""
    order = worth.flatten().argsort(descending=True, stable=True)
    order = order[queues.flatten()[order].argsort(stable=True)]
    waiting = queues.flatten()[order]
    kept = torch.zeros_like(waiting, dtype=torch.bool)
    begins = torch.searchsorted(waiting, waiting)
    kept[order] = torch.arange(len(waiting), device=waiting.device) - begins < places
    return kept.view_as(queues)
