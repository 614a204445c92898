"""Bounds: the forms that the page on the solver has, and golden makespans that meet them."""

import csv
from dataclasses import replace
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from random_pipelines import unit_pipeline

from meshwright.schedules.integer_times import whole_times
from meshwright.schedules.pipeline import PASS_MEMORY
from meshwright.schedules.solve import SolverInput
from meshwright.schedules.solve.lower_bounds import FIRST, LAST, MEMORY, WORK, lower_bound
from meshwright.schedules.stage_times import StageTimes

GOLDEN = Path(__file__).parents[3] / "benchmarks" / "schedule_page" / "zero-bubble.csv"
TICKS = st.integers(1, 20)


def equal_pipeline(ranks, micro_batches, fits, forward, input_, weight, message):
    times = StageTimes(*((time,) * ranks for time in (forward, input_, weight)), message)
    return replace(unit_pipeline(ranks, micro_batches, PASS_MEMORY * fits), times=times)


def bound_of(pipeline):
    return lower_bound(SolverInput.of(pipeline))


@given(st.integers(1, 6), st.integers(1, 8), st.integers(1, 30), TICKS, TICKS, TICKS, st.integers(0, 3))
def test_rank_0_has_the_forms_of_the_page(ranks, fits, more, forward, input_, weight, message):
    input_ += weight
    count = fits + more
    pipeline = equal_pipeline(ranks, count, fits, forward, input_, weight, message)
    way = (ranks - 1) * (forward + input_ + 2 * message)
    first = max(0, way + forward - fits * forward)
    last = max(0, way + input_ + weight - fits * (input_ + weight))
    work = count * (forward + input_ + weight)
    held = count * (way + forward + input_ + weight / 2) / fits
    bound = bound_of(pipeline)
    assert bound.makespan >= max(work + first + last, ceil(held - 1e-6))
    if ranks == 1:
        assert bound.makespan == work


@pytest.mark.parametrize(
    ("ranks", "fits", "reason"), [(4, 8, WORK), (4, 4, FIRST), (4, 3, LAST), (4, 1, MEMORY)]
)
def test_what_binds(ranks, fits, reason):
    assert bound_of(unit_pipeline(ranks, 16, PASS_MEMORY * fits)).reason == reason


def test_published_makespans_under_1f1bs_memory_can_not_be_shorter():
    with GOLDEN.open(encoding="utf-8") as lines:
        for row in csv.DictReader(lines):
            given_times = (float(row[name]) for name in ("forward", "input", "weight", "message"))
            ranks = int(row["ranks"])
            ticks = whole_times(equal_pipeline(ranks, 1, ranks, *given_times).times)
            pipeline = replace(unit_pipeline(ranks, int(row["micro_batches"]), None), times=ticks.times)
            assert bound_of(pipeline).makespan / ticks.in_unit == pytest.approx(float(row["zb_1p"]))
