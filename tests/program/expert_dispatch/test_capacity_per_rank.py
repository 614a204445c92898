"""Places of experts, and what a capacity leaves of what a workload says of routing."""

from dataclasses import replace
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.errors import InputError
from meshwright.model.load import load_model
from meshwright.program.expert_dispatch.expert_load import expert_load
from meshwright.workload.expert_capacity import Capacity
from meshwright.workload.expert_routing import Routing
from meshwright.workload.workload import Workload

MIXTRAL = load_model("mixtral-8x7b").architecture
EXPERTS, CHOSEN = 8, 2
WORKLOAD = Workload(seq_len=4096, global_batch=8)
SKEWS = st.one_of(st.none(), st.just("balanced"), st.sampled_from((0.3, 0.7, 1.5)))


def loaded(said, capacity, ep=8, tokens=4096):
    routing = None if said is None else Routing(said)
    return expert_load(replace(WORKLOAD, routing=routing, capacity=capacity), MIXTRAL, ep, tokens)


@pytest.mark.parametrize(
    ("tokens", "factor", "places"),
    [(4096, 1.0, 1024), (4096, 1.25, 1280), (10, 1.0, 3), (10, 0.1, 1), (10, 9.0, 10), (1, 1.0, 1)],
)
def test_an_expert_has_places_for_its_share_of_the_choices(tokens, factor, places):
    assert Capacity(factor=factor).places(tokens, EXPERTS, CHOSEN) == places


@pytest.mark.parametrize(("scope", "tokens"), [("rank", 512), ("micro-batch", 8192), ("sequence", 4096)])
def test_a_scope_has_so_many_tokens(scope, tokens):
    assert Capacity(factor=1.0, scope=scope).scope_tokens(512, 4096, 2) == tokens


@given(SKEWS, st.floats(0.05, 4), st.sampled_from((1, 2, 4, 8)), st.integers(1, 5000))
def test_no_expert_gets_more_than_it_has_places(said, factor, ep, tokens):
    capacity = Capacity(factor=factor)
    room = ceil(min(tokens, ceil(tokens * CHOSEN / EXPERTS * factor))) * EXPERTS / (tokens * CHOSEN)
    free, found = loaded(said, None, ep), loaded(said, capacity, ep, tokens)
    assert found.sent <= min(1, room) * (1 + 1e-12)
    assert found.most * found.sent == pytest.approx(room)
    if found.busiest is None:
        assert said is None
    else:
        assert 1 - 1e-12 <= found.busiest <= found.most * (1 + 1e-12)
        assert found.busiest * found.sent <= free.busiest * (1 + 1e-12)


@given(SKEWS, st.floats(0.05, 4), st.sampled_from((1, 2, 4, 8)))
def test_padded_experts_are_all_alike(said, factor, ep):
    found = loaded(said, Capacity(factor=factor, pad=True), ep)
    assert (found.busiest, found.most) == (1, 1)
    assert found.sent == ceil(1024 * factor) / 1024


def test_counts_are_cut_where_places_end():
    counts = ((6.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0),)
    found = loaded(counts, Capacity(factor=2.0))
    assert found.sent == pytest.approx((2 + 1 + 1) / 8)
    assert found.busiest == pytest.approx(2 / (4 / 8))


@pytest.mark.parametrize("factor", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_factor_that_is_none_is_refused(factor):
    with pytest.raises(InputError) as error:
        replace(WORKLOAD, capacity=Capacity(factor=factor))
    assert [problem.field for problem in error.value.problems] == ["workload.capacity.factor"]
