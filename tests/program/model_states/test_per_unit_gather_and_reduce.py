"""Gathers, frees and reductions of every unit of micro-batches in a rank's list (Tang et al., arXiv 2402.03791)."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.program.model_states.peak_unsharded_stages import peak_unsharded_stages
from meshwright.program.model_states.per_unit_gather_and_reduce import (
    MAKE_GRADIENTS,
    NEED_PARAMETERS,
    UnitRule,
    exchange_units,
)
from meshwright.schedules.action import format_actions, parse_actions
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.insert_messages import insert_messages
from meshwright.schedules.micro_batch_units import unit_of
from meshwright.schedules.pipeline import Knobs

BESIDE = frozenset({"GATHER", "REDUCE"})
WITH_UNITS = [name for name, kind in SCHEDULES.items() if kind.usual_unit is not None]
SHAPES = [(p, v, m, u) for p in (2, 4) for v in (2, 3, 4) for m in (4 * p, 8 * p) for u in (p, 2 * p)]


def exchanged(lists, size, overlapped=BESIDE):
    """Every rank's list with the exchanges of all its stages."""
    made = []
    for actions in lists:
        mine = {action.stage for action in actions}
        made.append(
            exchange_units(actions, UnitRule(size=size, gathered=mine, reduced=mine, overlapped=overlapped))
        )
    return made


def lists_of(name, p, v, m, unit):
    return SCHEDULES[name].lists(p, m, v, knobs=Knobs(unit=unit))


def count(lists, kind):
    return sum(action.kind == kind for actions in lists for action in actions)


def shown(text, **rule):
    return format_actions(
        exchange_units(parse_actions(text), UnitRule(**{"gathered": {0, 1}, "reduced": {0, 1}} | rule))
    )


def test_a_run_is_gathered_before_its_first_pass_and_freed_behind_its_last():
    assert shown("0F0 0F1 1F0 1F1 0B0 0B1", size=2) == (
        "0GATHER 0F0 0F1 0FREE 1GATHER 1F0 1F1 1FREE 0GATHER 0B0 0B1 0FREE 0REDUCE"
    )


def test_forward_and_backward_passes_of_a_unit_are_one_run_where_they_adjoin():
    assert shown("0F0 0F1 0B0 0B1 0F2 0B2", size=2) == (
        "0GATHER 0F0 0F1 0B0 0B1 0FREE 0REDUCE 0GATHER 0F2 0B2 0FREE 0REDUCE"
    )


def test_runs_of_a_stage_that_overlap_are_one_whatever_their_units():
    text = shown("0F0 0F1 1F0 1F1 0F2 0B0 0F3 0B1 1B0", size=2, reduced={0})
    assert text == (
        "0GATHER 0F0 0F1 0FREE 1GATHER 1F0 1F1 1FREE 0GATHER 0F2 0B0 0F3 0B1 0FREE 0REDUCE 1GATHER 1B0 1FREE"
    )


def test_weight_gradients_need_no_parameters_and_end_with_a_reduction():
    assert shown("0F0 0I0 1F0 0W0 1I0 1W0", size=1) == (
        "0GATHER 0F0 0I0 0FREE 1GATHER 1F0 0W0 0REDUCE 1I0 1FREE 1W0 1REDUCE"
    )


def test_what_no_ranks_share_is_left_alone():
    assert shown("0F0 0B0", size=1, gathered=(), reduced=()) == "0F0 0B0"


def test_gathers_beside_compute_begin_one_run_ahead_but_not_before_their_stage_is_freed():
    text = shown("0F0 1F0 1I0 0I0 0F1 1F1 1I1 0I1 0W0 1W0", size=1, reduced=(), overlapped=BESIDE)
    assert text == (
        "0GATHER 1GATHER 0F0 0FREE 0GATHER 1F0 1I0 1FREE 0I0 0FREE 0GATHER 1GATHER 0F1 0FREE 0GATHER 1F1 1I1 "
        "1FREE 0I1 0FREE 0W0 1W0"
    )


def test_a_gather_is_under_way_while_messages_are_waited_for_and_a_reduction_holds_up_none():
    (first, second) = insert_messages([parse_actions("0F0 0B0"), parse_actions("1F0 1B0")], (0, 1))
    assert format_actions(exchange_units(second, UnitRule(size=1, gathered={1}, reduced={1}))) == (
        "1GATHER 1RECV_F0 1F0 1B0 1FREE 1SEND_B0 1REDUCE"
    )
    overlapped = UnitRule(size=1, gathered={0}, reduced={0}, overlapped=BESIDE)
    assert format_actions(exchange_units(first, overlapped)) == (
        "0GATHER 0F0 0SEND_F0 0RECV_B0 0B0 0FREE 0REDUCE"
    )
    assert format_actions(
        exchange_units(second, UnitRule(size=1, gathered={1}, reduced={1}, overlapped=BESIDE))
    ) == ("1GATHER 1RECV_F0 1F0 1B0 1FREE 1SEND_B0 1REDUCE")


@pytest.mark.parametrize(("p", "v", "m", "unit"), SHAPES)
@pytest.mark.parametrize("name", ["zeropp", "looped-bfs"])
def test_gathers_are_units_times_stages_and_again_for_all_but_the_last_of_a_rank(name, p, v, m, unit):
    """n·P·(2V − 1): the last chunk's I follow its F."""
    made = exchanged(lists_of(name, p, v, m, unit), unit)
    n = m // unit
    assert count(made, "GATHER") == count(made, "FREE") == n * p * (2 * v - 1)
    assert count(made, "REDUCE") == n * p * v


@pytest.mark.parametrize(("p", "m", "unit"), [(1, 4, 1), (2, 8, 2), (4, 16, 4), (4, 16, 8), (3, 10, 4)])
def test_with_one_stage_a_rank_gathers_are_units_times_stages(p, m, unit):
    made = exchanged(lists_of("zeropp", p, 1, m, unit), unit)
    assert count(made, "GATHER") == count(made, "REDUCE") == -(-m // unit) * p


@pytest.mark.parametrize(("p", "v", "m", "unit"), SHAPES)
def test_one_stage_is_whole_at_a_time_or_two_where_gathers_run_beside_compute(p, v, m, unit):
    for overlapped, most in ((frozenset(), 1), (BESIDE, 2)):
        for rank, actions in enumerate(exchanged(lists_of("zeropp", p, v, m, unit), unit, overlapped)):
            whole = peak_unsharded_stages(actions, range(rank, p * v, p), overlapped)
            parameters, gradients = ([sum(of[i]) for of in whole] for i in (0, 1))
            assert (max(parameters), max(gradients)) == (most, most)
            assert max(max(of[0]) for of in whole) == 1


@given(
    name=st.sampled_from(WITH_UNITS),
    p=st.integers(2, 4),
    v=st.integers(2, 3),
    rounds=st.integers(1, 4),
    more=st.integers(0, 3),
    overlapped=st.sampled_from((frozenset(), BESIDE, frozenset({"GATHER"}), frozenset({"REDUCE"}))),
)
@settings(max_examples=80, deadline=None)
def test_every_pass_lies_between_gather_and_free_and_every_gradient_before_a_reduction(
    name, p, v, rounds, more, overlapped
):
    m, unit = rounds * p + more, p + more
    if SCHEDULES[name].fault(p, m, Knobs(unit=unit)) is not None:
        unit, m = p, rounds * p
    for plain, actions in zip(
        lists := lists_of(name, p, v, m, unit), exchanged(lists, unit, overlapped), strict=True
    ):
        assert [action for action in actions if action.micro_batch is not None] == list(plain)
        whole, waiting, gathered, reduced = set(), set(), Counter(), Counter()
        for action in actions:
            if action.kind == "GATHER":
                assert action.stage not in whole
                whole.add(action.stage)
                gathered[action.stage] += 1
            elif action.kind == "FREE":
                whole.remove(action.stage)
            elif action.kind == "REDUCE":
                assert action.stage in waiting
                waiting.remove(action.stage)
                reduced[action.stage] += 1
            else:
                assert action.stage in whole or action.kind not in NEED_PARAMETERS
                waiting |= {action.stage} if action.kind in MAKE_GRADIENTS else set()
        assert not whole
        assert not waiting
        units = len({unit_of(micro_batch, unit) for micro_batch in range(m)})
        assert set(reduced.values()) == {units}
        assert all(1 <= times <= 2 * units for times in gathered.values())


def test_interleaving_holds_a_forward_and_a_backward_run_and_gathers_one_ahead():
    most = [
        max(sum(of[0]) for of in peak_unsharded_stages(actions, range(rank, 16, 4), BESIDE))
        for rank, actions in enumerate(exchanged(lists_of("interleaved-1f1b", 4, 4, 16, 4), 4))
    ]
    assert max(most) <= 3
