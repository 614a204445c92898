"""Lists within ``in_flight``: they can run, the first rank holds no more, and a higher limit makes no step longer."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cost.pipeline_time.time_action_lists import played_seconds
from meshwright.play.in_flight import most_in_flight
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.custom.check_lists import check_lists
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.in_flight_bounds import in_flight_bounds
from meshwright.schedules.pipeline import Knobs
from meshwright.schedules.stage_times import equal_times
from meshwright.schedules.timeline import played

LIMITED = [name for name, kind in SCHEDULES.items() if "in_flight" in kind.depends_on]
SHAPES = [
    (2, 2, 4),
    (2, 3, 6),
    (3, 2, 6),
    (3, 4, 9),
    (4, 2, 8),
    (4, 3, 8),
    (4, 4, 16),
    (6, 5, 12),
    (8, 3, 16),
]
"""P, V, M."""
CASES = [
    (name, p, v if SCHEDULES[name].chunked else 1, m, unit)
    for name in LIMITED
    for p, v, m in SHAPES
    for unit in (None, p, 2 * p)
    if unit is None or (SCHEDULES[name].usual_unit and m % unit == 0)
]


def held(lists):
    return [most_in_flight(actions) for actions in lists]


def makespan(lists, p, v):
    return played(lists, equal_times(p * v), SCHEDULES["1f1b"].ways(p, v)).makespan


def test_three_schedules_have_the_knob():
    assert LIMITED == ["1f1b", "interleaved-1f1b", "looped-bfs"]


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize(("name", "p", "v", "m", "unit"), CASES)
def test_every_limit_holds_and_a_higher_one_is_no_slower(name, p, v, m, unit):
    usual = ScheduleChoice(name, unit=unit)
    without = usual.lists(p, m, v)
    most = held(without)
    before = float("inf")
    for limit in range(v, most[0] + 2):
        choice = ScheduleChoice(name, unit=unit, in_flight=limit)
        lists = choice.lists(p, m, v)
        assert check_lists(lists) == []
        assert all(here <= min(limit, there) for here, there in zip(held(lists), most, strict=True))
        assert (lists == without) == (limit >= most[0])
        length = makespan(lists, p, v)
        assert length <= before
        before = length


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(LIMITED), st.integers(2, 6), st.integers(2, 4), st.integers(1, 14), st.data())
def test_any_limit_of_any_pipeline_holds_on_all_ranks(name, p, v, m, data):
    """Units that leave a remainder too; one of more than M micro-batches is none."""
    kind = SCHEDULES[name]
    v = v if kind.chunked else 1
    units = [u for u in range(1, m + 1) if kind.usual_unit and kind.fault(p, m, Knobs(unit=u)) is None]
    unit = data.draw(st.sampled_from(units or [None]))
    if unit is None and kind.fault(p, m) is not None:
        return
    choice = ScheduleChoice(name, unit=unit, in_flight=data.draw(st.integers(v, v * m + 1)))
    lists = choice.lists(p, m, v)
    assert check_lists(lists) == []
    bounds = in_flight_bounds(choice, p, m, v)
    assert all(here <= most <= choice.in_flight for here, most in zip(held(lists), bounds, strict=True))


@pytest.mark.parametrize("name", LIMITED)
def test_a_pass_of_each_stage_is_the_smallest_limit(name):
    """Nearly one micro-batch at a time, whose passes follow each other on all ranks."""
    p, m = 4, 8
    v = 3 if SCHEDULES[name].chunked else 1
    lists = ScheduleChoice(name, in_flight=v).lists(p, m, v)
    assert held(lists) == [v] * p
    assert 0.8 * 3 * m * p * v < makespan(lists, p, v) <= 3 * m * p * v


@pytest.mark.parametrize(("limit", "warm_up"), [(1, [0, 0, 0, 0]), (2, [1, 1, 1, 0]), (3, [2, 2, 1, 0])])
def test_1f1b_warms_up_with_fewer(limit, warm_up):
    lists = ScheduleChoice("1f1b", in_flight=limit).lists(4, 8, 1)
    assert [[a.kind for a in actions].index("B") - 1 for actions in lists] == warm_up


def test_a_unit_shrinks_to_what_may_be_held():
    """(V−1)·u + 1 passes come before the first backward pass; 3 units of 11 where N / V = 12 of 32 micro-batches."""
    choice = ScheduleChoice("interleaved-1f1b", in_flight=96)
    assert choice.unit_size(16, 32, 8) == 11
    assert ScheduleChoice("interleaved-1f1b").unit_size(16, 32, 8) == 16
    assert ScheduleChoice("looped-bfs").unit_size(4, 8, 2) == 8


@pytest.mark.parametrize("name", LIMITED)
@pytest.mark.parametrize("m", [8, 64])
def test_the_cost_model_prices_the_lists_themselves(name, m):
    """Also where a pipeline is long enough for others to be extrapolated from a few rounds."""
    p, v = 4, 2 if SCHEDULES[name].chunked else 1
    choice = ScheduleChoice(name, in_flight=2 * v + 1)
    ones = np.ones((1, p * v))
    priced = played_seconds(choice, ones, 2 * ones, np.zeros(1), np.array([m]), p)
    assert priced[0] == makespan(choice.lists(p, m, v), p, v)
