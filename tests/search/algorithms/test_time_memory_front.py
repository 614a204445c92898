"""The Pareto set in time and memory, against a comparison of every pair of plans."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright import api
from meshwright.search.algorithms import time_memory_front as module
from meshwright.search.algorithms.exhaustive import RankedPlans, ranked

POINTS = st.lists(
    st.tuples(st.integers(1, 6), st.integers(1, 6), st.booleans()), min_size=0, max_size=12, unique=True
)


def unbeaten(points, ratio):
    fitting = {(time, size) for time, size, fits in points if fits}
    fastest = min((time for time, _ in fitting), default=0)

    def beats(one, other):
        return one != other and one[0] <= other[0] and one[1] <= other[1]

    front = [one for one in fitting if not any(beats(other, one) for other in fitting)]
    return sorted(one for one in front if one[0] <= ratio * fastest)


@given(points=POINTS, ratio=st.sampled_from([1.0, 1.5, np.inf]))
def test_it_is_what_comparing_all_pairs_finds(points, ratio):
    times, sizes, fits = (
        (np.array(column) for column in zip(*points, strict=True)) if points else [np.zeros(0)] * 3
    )
    fits = fits.astype(np.bool_)
    found = RankedPlans(None, times.astype(float), sizes.astype(float), fits, ranked(times, sizes, fits), 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "short_plan", lambda plans, row, header: row)
        front = module.time_memory_front(found, None, ratio)
    assert [(one.step_s, one.total_bytes) for one in front] == unbeaten(points, ratio)
    assert [(times[one.plan], sizes[one.plan]) for one in front] == unbeaten(points, ratio)


def test_plan_lists_the_front_of_the_plans_that_tie():
    answer = api.plan("llama-3.1-8b", on="h100-sxm-80gb x 8", seq_len=4096, global_batch=64, top=8).to_json()
    front, plans = answer["pareto_memory"], answer["plans"]
    times, sizes = ([point[key] for point in front] for key in ("step_time_s", "memory_bytes"))
    assert times == sorted(times)
    assert sizes == sorted(sizes, reverse=True)
    assert times[0] == answer["fastest"]["predict"]["step_time_s"]
    assert times[-1] <= answer["tie_ratio"] * times[0]
    for one in plans:
        time, size = one["predict"]["step_time_s"], one["predict"]["memory_bytes"]["total"]
        beaten = [point for point in front if point["step_time_s"] <= time and point["memory_bytes"] <= size]
        assert beaten or time > answer["tie_ratio"] * times[0]
