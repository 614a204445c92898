"""How copies of tokens travel: which form a plan has, and its bytes as every choice of a small router counts them."""

from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.program.expert_dispatch.dispatch_fanout import ExpertChoice
from meshwright.program.expert_dispatch.dispatch_forms import (
    LEGS,
    deduplicated_bytes,
    ep_parts,
    exchange_form,
    logical_bytes,
)
from meshwright.program.layouts.rank_mesh import RankGrid, together
from meshwright.program.local_shape import LocalShape
from meshwright.program.pass_items import Collective, legs_of
from meshwright.stack.load import load_stack, own_stack
from meshwright.stack.stack import OWN_STACK

FLAT = load_stack(OWN_STACK)
ONCE = own_stack(load_stack("megatron-bridge"))
CHOICE = ExpertChoice(experts=8, chosen=3)
ROWS = tuple(combinations(range(CHOICE.experts), CHOICE.chosen))


def shape(ep, inside):
    return LocalShape(micro_batch=1, seq_len=len(ROWS), cp=1, tp=1, ep=ep, etp=1, ep_inside=inside)


def different(of_part):
    """Parts of so many experts that all rows reach together."""
    return sum(len({expert // of_part for expert in row}) for row in ROWS)


@pytest.mark.parametrize(
    ("ep", "inside", "form"),
    [(1, 1, "flat"), (4, 4, "once-per-rank"), (4, 1, "once-per-rank"), (4, 2, "hierarchical")],
)
def test_the_form_follows_from_stack_and_domains(ep, inside, form):
    assert exchange_form(shape(ep, inside), FLAT) == "flat"
    assert exchange_form(shape(ep, inside), ONCE) == form
    assert ep_parts(shape(ep, inside), FLAT) == {}
    parts = ep_parts(shape(ep, inside), ONCE)
    assert {axes for leg in LEGS[form] for axes in leg} == ({*parts["ep"]} if parts else {"ep"})


@pytest.mark.parametrize(("ep", "inside"), [(2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (8, 2), (8, 4)])
def test_legs_have_the_bytes_of_every_choice_counted(ep, inside):
    row_bytes, of_rank, here = 10, CHOICE.experts // ep, shape(ep, inside)
    once = deduplicated_bytes(row_bytes * len(ROWS), CHOICE, here)
    item = Collective("all-to-all", ("ep",), logical_bytes(once, here), "dispatch", once=once)
    grid = RankGrid({"ep": ep}, ("ep",), ep_parts(here, ONCE))
    legs = legs_of(item, grid)
    assert tuple(leg.axes for leg in legs) == LEGS[exchange_form(here, ONCE)]
    expected = [different(of_rank * inside), different(of_rank)][-len(legs) :]
    assert [leg.logical_bytes for leg in legs] == pytest.approx([row_bytes * rows for rows in expected])
    assert item.logical_bytes == pytest.approx(sum(leg.logical_bytes for leg in legs))


def test_arrays_of_plans_have_the_bytes_of_each():
    ep, inside = np.array([1, 2, 4, 4, 8]), np.array([1, 2, 2, 4, 1])
    many = shape(ep, inside)
    found = logical_bytes(deduplicated_bytes(7.0, CHOICE, many), many)
    alone = [
        logical_bytes(deduplicated_bytes(7.0, CHOICE, one), one)
        for one in map(shape, ep.tolist(), inside.tolist())
    ]
    assert found.tolist() == alone
    assert alone[0] == 0


@given(size=st.integers(1, 48), step=st.integers(1, 8), domain=st.integers(1, 24))
def test_an_axis_is_cut_evenly_and_as_domains_are_where_sizes_divide(size, step, domain):
    run = int(together(size, step, domain))
    assert size % run == 0
    if domain % step == 0 and (size * step) % domain == 0:
        members = [place * step for place in range(size)]
        borders = sum(a // domain != b // domain for a, b in pairwise(members))
        assert run == size // (borders + 1)


def test_our_runtime_does_as_the_stack_of_a_plan():
    assert ONCE.name == OWN_STACK
    assert ONCE.deduplicates_exchange
    assert own_stack(load_stack("deepspeed")) == FLAT
