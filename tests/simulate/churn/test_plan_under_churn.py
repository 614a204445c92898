"""The rows of a plan whose peers leave and join, and the plans that cannot be routed."""

import sys
from pathlib import Path

import pytest

from meshwright.errors import InputError
from meshwright.plans.forms.conversion import expand
from meshwright.simulate.churn.plan_under_churn import AssumedChurn, churn_rows, skip_patterns

sys.path.append(str(Path(__file__).parents[1]))
from pipeline_programs import lowered


def rows_of(per_hour, skip_share=1 / 3, **plan):
    found = lowered(**plan)
    long = expand(found.short, found.setting.model.architecture)
    rows, origin = churn_rows(long, found.setting, AssumedChurn(per_hour, 660.0, skip_share))
    return found, {row["routing"]: row for row in rows}, origin


@pytest.mark.parametrize("sharding", ["none", "zero1"])
def test_without_churn_fixed_and_swarm_take_the_simulated_step_and_skip_less(sharding):
    found, rows, _ = rows_of(0.0, pp=4, dp_replicate=2, sharding=sharding, dp_shard=2)
    step_s = found.simulated().step_s
    for routing in ("fixed", "swarm"):
        for name in ("step_time_s", "step_time_low_s", "step_time_high_s"):
            assert rows[routing][name] == pytest.approx(step_s, rel=1e-9)
    assert rows["swarm"]["load_ratio"] == pytest.approx(rows["fixed"]["load_ratio"], rel=1e-9)
    assert rows["skip"]["step_time_s"] < step_s


def test_with_churn_low_and_high_enclose_most_runs_and_swarm_waits_less():
    _, rows, origin = rows_of(2.0, pp=4, dp_replicate=2)
    for row in rows.values():
        assert row["step_time_low_s"] < row["step_time_high_s"]
        assert row["load_ratio"] >= 1
    assert rows["swarm"]["step_time_s"] < rows["fixed"]["step_time_s"]
    assert "leaves 2 times an hour" in origin


def test_a_share_of_zero_skips_nothing():
    found, rows, _ = rows_of(0.0, 0.0, pp=4)
    assert rows["skip"]["step_time_s"] == pytest.approx(found.simulated().step_s, rel=1e-9)


@pytest.mark.parametrize(
    ("plan", "field"),
    [
        ({"pp": 1}, "pipeline.stages"),
        ({"schedule": "interleaved-1f1b", "virtual_stages": 2}, "pipeline.schedule"),
        ({"schedule": "zb-h1"}, "pipeline.schedule"),
    ],
)
def test_plans_that_cannot_be_routed_are_refused_by_name(plan, field):
    with pytest.raises(InputError) as caught:
        rows_of(1.0, **plan)
    assert [problem.field for problem in caught.value.problems] == [field]


@pytest.mark.parametrize(
    ("stages", "share", "visits"), [(4, 1 / 3, 3), (6, 1 / 3, 4), (8, 0.25, 6), (2, 0.5, 2)]
)
def test_patterns_leave_the_share_out_and_visit_optional_stages_equally_often(stages, share, visits):
    from uniform_pipeline import uniform

    patterns = skip_patterns(uniform(stages=stages).work, share)
    assert {len(pattern) for pattern in patterns} == {visits}
    counts = {sum(stage in pattern for pattern in patterns) for stage in range(1, stages - 1)}
    assert len(counts) <= 1
    assert all({0, stages - 1} <= set(pattern) for pattern in patterns)


def test_patterns_of_many_stages_are_not_searched():
    from uniform_pipeline import uniform

    patterns = skip_patterns(uniform(stages=32, replicas=1, micro_batches=1).work, 0.5)
    assert {len(pattern) for pattern in patterns} == {16}
    assert len({sum(stage in pattern for pattern in patterns) for stage in range(1, 31)}) == 1
