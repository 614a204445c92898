"""Copies for parts: one for each that a row names, and sums that bring all of them back."""

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given
from hypothesis import strategies as st

from meshwright.runtime.kernels.token_dispatch.row_copies import NOWHERE, row_copies


@st.composite
def named_parts(draw):
    rows, slots = draw(st.integers(0, 6)), draw(st.integers(1, 4))
    values = st.integers(NOWHERE, 3)
    named = draw(st.lists(st.lists(values, min_size=slots, max_size=slots), min_size=rows, max_size=rows))
    return torch.tensor(named, dtype=torch.int64).view(rows, slots)


@given(named_parts())
def test_every_row_has_one_copy_for_each_part_that_it_names(parts):
    found = row_copies(parts)
    copies = list(zip(found.rows.tolist(), parts.flatten()[found.slots].tolist(), strict=True))
    wanted = {(row, part) for row, of in enumerate(parts.tolist()) for part in of if part != NOWHERE}
    assert set(copies) == wanted
    assert len(copies) == len(wanted)
    assert copies == sorted(copies, key=lambda copy: copy[::-1])


@given(named_parts())
def test_sums_bring_back_every_copy_of_a_row_and_of_no_other(parts):
    found = row_copies(parts)
    x = torch.randn((len(parts), 3), dtype=torch.float64)
    times = torch.tensor([len({*of} - {NOWHERE}) for of in parts.tolist()], dtype=torch.float64)
    torch.testing.assert_close(found.sums(found.copies(x), torch.float64), x * times.view(-1, 1))
    numbers = torch.arange(1.0, 1.0 + len(found.slots))
    assert found.of_slots(found.to_slots(numbers)).tolist() == numbers.tolist()
    assert found.to_slots(numbers).sum() == numbers.sum()
