"""The smallest change that mends a plan."""

from math import inf

from meshwright.plans.forms.short import ShortPlan
from meshwright.search.nearby.smallest_fix import mend

PLAN = ShortPlan.model_validate(
    {
        "plan": 1,
        "model": "m",
        "cluster": "c x 16",
        "workload": {"seq_len": 8, "global_batch": 64},
        "layout": {"dp_shard": 8, "tp": 2},
        "sharding": "zero1",
        "pipeline": {"micro_batch": 4},
    }
)


def judged(good):
    """Seconds by a rule on plans; plans of which it says None do not do."""

    def judge(plans):
        return [inf if good(plan) is None else good(plan) for plan in plans]

    return judge


def test_of_single_changes_the_quickest_wins():
    found = mend(PLAN, 16, 0, judged(lambda p: {1: 3.0, 2: 2.0}.get(p.pipeline.micro_batch)))
    assert found.settings == ("micro_batch=2",)
    assert found.step_s == 2.0
    assert found.plan.pipeline.micro_batch == 2


def test_two_changes_are_tried_only_where_one_does_not_do():
    def good(plan):
        return 1.0 if plan.layout.tp == 8 and plan.recompute == "full" else None

    found = mend(PLAN, 16, 0, judged(good))
    assert set(found.settings) == {"tp=8", "recompute=full"}
    assert found.plan.layout.dp_shard == 2


def test_experts_are_spread_only_where_there_are_some():
    def good(plan):
        return 1.0 if plan.layout.ep == 4 else None

    assert mend(PLAN, 16, 0, judged(good)) is None
    assert mend(PLAN, 16, 8, judged(good)).settings == ("ep=4",)


def test_every_tried_plan_fills_the_devices():
    seen = []

    def judge(plans):
        seen.extend(plans)
        return [inf] * len(plans)

    assert mend(PLAN, 16, 0, judge) is None
    assert seen
    assert all(
        p.layout.pp * p.layout.dp_replicate * p.layout.dp_shard * p.layout.cp * p.layout.tp == 16
        for p in seen
    )
