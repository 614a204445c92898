"""Shares of the batch in small plans: unlike where the plan's are, with one sum for all layouts."""

import pytest
from plan_cases import DENSE, changed, graph, long_plan

from meshwright.plans.forms.long import Grid, Layout
from meshwright.plans.layers.plan_of_layout import replicas, sequences_together
from meshwright.plans.shrink.small_plans import small_plans
from meshwright.plans.shrink.small_shares import with_small_shares

ORDER = ("tp", "cp", "dp_shard", "dp_replicate", "pp")


def layout(share=None, **degrees):
    return Layout(grid=Grid(**degrees), order=ORDER, batch_share=share)


@pytest.mark.parametrize(
    ("share", "small"), [((5, 1, 1, 1), (3, 1)), ((1, 1, 4, 2), (1, 3)), ((1, 1, 2, 4), (1, 3))]
)
def test_most_sequences_are_at_the_place_of_the_largest_share(share, small):
    plan = changed(long_plan(), layouts={"main": layout(share, dp_shard=4)})
    found = with_small_shares({"main": layout(dp_shard=2)}, plan)
    assert found["main"].batch_share == small


def test_all_layouts_have_one_sum_that_replicas_divide():
    layouts = {
        "a": layout((1, 3, 2, 2), dp_shard=4),
        "b": layout((6, 2), dp_shard=2, tp=2),
        "c": layout(dp_replicate=8),
    }
    plan = changed(long_plan(), layouts=layouts)
    small = {"a": layout(dp_shard=2), "b": layout(tp=2), "c": layout(dp_replicate=4)}
    found = with_small_shares(small, plan)
    assert [found[name].batch_share for name in "abc"] == [(7, 1), (8,), None]
    together = sequences_together(changed(plan, layouts=found))
    assert together % replicas(found["c"]) == 0


def test_layouts_of_even_plans_stay_as_they_are():
    small = {"main": layout(dp_shard=2)}
    assert with_small_shares(small, changed(long_plan(), layouts={"main": layout(dp_shard=4)})) == small


def test_a_plan_of_one_layout_keeps_unlike_replicas():
    plan = changed(
        long_plan({"pp": 2, "dp_replicate": 8}, cluster="h100-sxm-80gb x 16"),
        layouts={"main": layout((1, 1, 1, 1, 1, 1, 1, 9), dp_replicate=8)},
        workload={"seq_len": 4096, "global_batch": 64},
    )
    found = small_plans(plan, graph(DENSE), 8)
    assert "batch_share" in found.features
    (small,) = found.plans
    assert next(iter(small.long.layouts.values())).batch_share == (1, 3)
    assert small.long.workload.global_batch == 16
    assert "4 micro-batches of 1 + 3" in small.text


@pytest.mark.parametrize(
    ("weights", "degrees", "small"),
    [
        ((2, 2, 1, 1, 1, 1, 0, 0), {"dp_shard": 4}, (3, 0, 1, 1)),
        ((1, 1, 1, 5), {"dp_shard": 2, "cp": 2}, (1, 1, 1, 3)),
        ((0, 0, 1, 1), {"dp_shard": 2}, (1, 3)),
        ((1, 3), {"tp": 2}, None),
        ("even", {"dp_shard": 2}, None),
    ],
)
def test_one_rank_has_most_of_the_states_and_another_may_have_none(weights, degrees, small):
    own = layout(dp_shard=4).model_copy(update={"state_share": weights})
    found = with_small_shares({"main": layout(**degrees)}, changed(long_plan(), layouts={"main": own}))
    assert found["main"].state_share == small


def test_a_small_plan_has_weights_where_it_shards_states():
    own = layout(dp_shard=8).model_copy(update={"state_share": (2, 1, 1, 1, 1, 1, 1, 0)})
    plan = changed(long_plan(), layouts={"main": own}, states={"optimizer": ("dp_shard", "cp")})
    found = small_plans(plan, graph(DENSE), 8)
    assert "state_share" in found.features
    assert [next(iter(small.long.layouts.values())).state_share for small in found.plans] == [(3, 1)]
