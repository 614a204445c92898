"""Few plans that differ from each other."""

from meshwright.plans.forms.short import ShortPlan
from meshwright.search.nearby.diverse_subset import diverse_subset


def plan(**layout):
    micro_batch = layout.pop("micro_batch", 1)
    return ShortPlan.model_validate(
        {
            "plan": 1,
            "model": "m",
            "cluster": "c",
            "workload": {"seq_len": 8, "global_batch": 8},
            "layout": layout,
            "pipeline": {"micro_batch": micro_batch},
        }
    )


def test_the_farthest_comes_next_and_of_equals_the_better():
    near, far, as_far = plan(tp=2), plan(tp=2, pp=2), plan(tp=4, pp=4)
    assert diverse_subset(plan(), [near, far, as_far], 2) == [plan(), far]


def test_how_much_a_degree_differs_does_not_count():
    assert diverse_subset(plan(), [plan(tp=2), plan(tp=64)], 2)[1] == plan(tp=2)


def test_plans_that_are_no_different_are_left_out():
    alike = plan().model_copy(update={"recompute": "full"})
    assert diverse_subset(plan(), [alike, plan(pp=2)], 3) == [plan(), plan(pp=2)]
