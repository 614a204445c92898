"""Steps in vectors alone: the bits of an element do not depend on where its range begins and ends."""

import pytest
import torch

from meshwright.runtime.state.on_host.vector_lanes import all_in_vectors, lent
from meshwright.runtime.state.update_rules.adamw_rule import adamw
from meshwright.runtime.state.update_rules.update_rule import StepValues

ELEMENTS, TRIES = 1001, 40
CUTS = ((0, 333), (333, 671), (671, ELEMENTS))
VALUES = StepValues(4, 1e-2, 0.1, {"betas": (0.9, 0.95), "epsilon": 1e-8})


def stepped(drawn, ranges, dtype):
    """Return the parameters after a step of each range by itself, all of it in vectors."""
    buffers = [values.clone() for values in drawn]
    for one in ranges:
        with lent(buffers, all_in_vectors((one,), dtype)) as (p, g, m, v):
            adamw(p, g, {"first_moment": m, "second_moment": v}, VALUES)
    return buffers[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cuts_do_not_change_bits(dtype):
    draw = torch.Generator().manual_seed(0)
    for _ in range(TRIES):
        drawn = [torch.randn(ELEMENTS, dtype=dtype, generator=draw) for _ in range(3)]
        drawn.append(torch.rand(ELEMENTS, dtype=dtype, generator=draw))
        whole = stepped(drawn, [(0, ELEMENTS)], dtype)
        assert torch.equal(whole, stepped(drawn, CUTS, dtype))
        assert not torch.equal(whole, drawn[0])
