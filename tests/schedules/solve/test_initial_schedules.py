"""Seeds: every schedule of the table that is made for the pipeline and fits, and always one."""

import pytest
from hypothesis import given, settings
from random_pipelines import pipelines, unit_pipeline

from meshwright.schedules.custom.check_lists import check_lists
from meshwright.schedules.pipeline import looped_placement, v_placement
from meshwright.schedules.solve import SolverInput
from meshwright.schedules.solve.initial_schedules import PLAYED, seeds
from meshwright.schedules.split_backward.pass_numbers import numbered


@settings(deadline=None)
@given(pipelines([(2, 4, 1), (4, 4, 2), (3, 5, 3), (1, 2, 2)]))
def test_seeds_keep_to_the_limit(pipeline):
    found = list(seeds(SolverInput.of(pipeline)))
    assert found
    for seed in found:
        lists = numbered(seed.orders, pipeline.stages)
        assert not check_lists(lists, memory_limit=pipeline.memory_limit, kept=pipeline.times.kept)
    assert all(a.orders != b.orders for i, a in enumerate(found) for b in found[:i])


@pytest.mark.parametrize(
    ("chunks", "placement", "limit", "names"),
    [
        (1, v_placement, 8, {"1f1b", "zb-h1"}),
        (1, v_placement, 16, {"gpipe", "1f1b", "zb-h1", "zb-h2"}),
        (2, v_placement, 9, {"zb-v", "v-half", "v-min", "dualpipev"}),
        (2, looped_placement, 16, {"interleaved-1f1b", "looped-bfs", "zeropp"}),
        (3, v_placement, 2, {PLAYED}),
    ],
)
def test_names(chunks, placement, limit, names):
    assert {
        seed.name for seed in seeds(SolverInput.of(unit_pipeline(4, 8, limit, chunks, placement)))
    } >= names
