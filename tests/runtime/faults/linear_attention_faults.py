"""Faults of linear attention: states of the wrong piece, states that do not decay or come home, norms of some heads."""

from dataclasses import replace

import torch
from injected_fault import Fault
from linear_attention_plans import CUT, PACKED, TENSORS, WIDE

from meshwright.program.context_parallel.positions_and_masks import rank_stretches
from meshwright.runtime.kernels.linear_attention.block_recurrence import Decay
from meshwright.runtime.kernels.linear_attention.linear_attention import (
    GatedNormKernel,
    LinearAttentionKernel,
)
from meshwright.runtime.kernels.linear_attention.state_passing import RankSequencePieces


def state_of_the_neighbour():
    original = RankSequencePieces.entered
    RankSequencePieces.entered = lambda self, gathered: original(self, gathered.roll(1, 0))


def states_do_not_decay_on_their_way():
    original = RankSequencePieces._passed
    RankSequencePieces._passed = lambda self, before, behind: (original(self, before, behind) > 0).to(
        self.decay.rates
    )


def heads_forget_at_one_rate():
    original = Decay.__init__

    def init(self, rates, size):
        original(self, rates.mean().expand_as(rates), size)

    Decay.__init__ = init


def gradients_of_states_stay_away():
    RankSequencePieces.left = lambda self, gathered: torch.zeros_like(self.entered(gathered))


def pieces_in_the_order_of_ranks():
    def everywhere(self):
        ranks = int(self.setting.shape.cp)
        return [
            rank_stretches(int(self.setting.shape.seq_len), ranks, ranks, "contiguous", r)
            for r in range(ranks)
        ]

    RankSequencePieces.everywhere = property(everywhere)


def norm_of_a_ranks_own_heads():
    original = GatedNormKernel.exchange

    def exchange(self, item, x, visit):
        if item.phase == "I":
            return (yield from original(self, item, x, visit))
        own = self._squares(x[0]) * self.setting.tp
        yield from original(self, item, x, visit)
        return (*x, own)

    GatedNormKernel.exchange = exchange


def states_pass_the_borders_of_documents():
    original = LinearAttentionKernel._pieces

    def pieces(self, visit):
        found = original(self, visit)
        passed = found._passed
        object.__setattr__(
            found,
            "_passed",
            lambda before, behind: (passed(before, behind) * 0 + 1) * (before[1] <= behind[0]),
        )
        return found

    LinearAttentionKernel._pieces = pieces


LINEAR_FAULTS = (
    Fault("the state that enters is that of another piece", CUT, state_of_the_neighbour),
    Fault("states do not decay on their way between pieces", WIDE, states_do_not_decay_on_their_way),
    Fault("heads forget at one rate", CUT, heads_forget_at_one_rate),
    Fault("gradients of states do not come home", CUT, gradients_of_states_stay_away),
    Fault("head and tail pieces are taken for contiguous ones", WIDE, pieces_in_the_order_of_ranks),
    Fault(
        "a norm over all heads is that of a rank's own", replace(CUT, **TENSORS), norm_of_a_ranks_own_heads
    ),
    Fault(
        "states pass the borders of documents", replace(PACKED, cp=4), states_pass_the_borders_of_documents
    ),
)
