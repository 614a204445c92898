"""Faults of Mamba-2: states that begin again with a block, filters that look ahead, sums over some heads only."""

from dataclasses import replace

import torch
from injected_fault import Fault
from state_space_plans import HYBRID, TENSORS

from meshwright.program.rank_units import unit_layout
from meshwright.runtime.kernels.state_space import state_space
from meshwright.runtime.kernels.state_space.gated_input_norm import GatedInputNormKernel
from meshwright.runtime.kernels.state_space.state_space_recurrence import Recurrence


def states_begin_again_with_a_block():
    original = Recurrence._block
    Recurrence._block = lambda self, rows, state: original(self, rows, torch.zeros_like(state))


def filters_look_ahead():
    original = state_space.causal_filter
    state_space.causal_filter = lambda x, weight, bias: original(x.roll(-1, 0), weight, bias)


def filters_of_b_and_c_are_not_summed():
    original = unit_layout.is_partial
    unit_layout.is_partial = lambda parameter, op: (
        original(parameter, op) and not parameter.name.startswith("mamba.bc_conv")
    )


def gated_norm_of_a_ranks_own_heads():
    original = GatedInputNormKernel.exchange

    def exchange(self, item, x, visit):
        if item.phase == "I":
            return (yield from original(self, item, x, visit))
        own = self._squares(self._gated(*x)) * self.setting.tp
        yield from original(self, item, x, visit)
        return (*x, own)

    GatedInputNormKernel.exchange = exchange


STATE_SPACE_FAULTS = (
    Fault("states begin again with each block", HYBRID, states_begin_again_with_a_block),
    Fault("filters look ahead", HYBRID, filters_look_ahead),
    Fault(
        "the filter of B and C is that of a rank's own heads",
        replace(HYBRID, tp=2),
        filters_of_b_and_c_are_not_summed,
        "named error",
        "all-reduce of whole moves 0 bytes",
    ),
    Fault(
        "a gated norm over all heads is that of a rank's own",
        replace(HYBRID, **TENSORS),
        gated_norm_of_a_ranks_own_heads,
    ),
)
