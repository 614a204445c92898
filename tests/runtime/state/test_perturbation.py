"""Places of a rank's elements in the whole parameter."""

import pytest
import torch

from meshwright.program.rank_units.unit_layout import Cut, Tensor
from meshwright.runtime.state.perturbation import whole_indices

CASES = {
    "whole": ((5, 7), (5, 7), ()),
    "columns": ((5, 3), (5, 7), (Cut(1, 3, 6),)),
    "padded rows": ((4, 6), (10, 6), (Cut(0, 8, 10),)),
    "only padding": ((4, 6), (10, 6), (Cut(0, 10, 10),)),
    "experts in order": ((2, 3, 4), (6, 3, 8), (Cut(0, 2, 4, (5, 1)), Cut(2, 4, 8))),
}


@pytest.mark.parametrize("name", CASES)
def test_elements_are_found_in_the_whole_parameter(name):
    shape, whole_shape, cuts = CASES[name]
    tensor = Tensor("w", shape, whole_shape, cuts, widths_cut=False, partial=False, trained=True)
    whole = torch.arange(torch.Size(whole_shape).numel()).view(whole_shape)
    expected = torch.full(shape, -1)
    index = [slice(None)] * len(shape)
    inside = [slice(None)] * len(shape)
    for cut in cuts:
        index[cut.dim] = slice(cut.start, cut.stop) if cut.rows is None else list(cut.rows)
        inside[cut.dim] = slice(0, cut.stop - cut.start)
    expected[tuple(inside)] = whole[tuple(index)]
    for start, stop in ((0, expected.numel()), (3, expected.numel() - 2)):
        found, held = whole_indices(tensor, start, stop, torch.device("cpu"))
        part = expected.flatten()[start:stop]
        assert torch.equal(held, part >= 0)
        assert torch.equal(found[held], part[held])
