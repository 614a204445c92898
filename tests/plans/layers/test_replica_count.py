"""Plans of other numbers of replicas: the same batch and layout, cut evenly or by shares."""

import pytest

from meshwright.errors import InputError
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.plan_of_layout import sequences_together
from meshwright.plans.layers.replica_count import plans_of_replicas, replicas_of_plan
from meshwright.plans.resolve import resolve


def plan(devices, batch=24, micro_batch=1, model="llama-3.2-1b", **keys):
    data = {
        "plan": 1,
        "model": model,
        "cluster": f"h100-sxm-80gb x {devices}",
        "stack": "meshwright",
        "workload": {"seq_len": 4096, "global_batch": batch},
        "pipeline": {"micro_batch": micro_batch},
        **keys,
    }
    return resolve(ShortPlan.model_validate(data)).long


def shares(long, replicas):
    """The sequences of each replica in a micro-batch, and the micro-batches, of the best plan."""
    best = next(iter(plans_of_replicas(long, replicas)))
    (layout,) = best.layouts.values()
    count = layout.grid.dp_replicate * layout.grid.dp_shard
    share = layout.batch_share or (best.pipeline.micro_batch,) * count
    return share, long.workload.global_batch // sequences_together(best)


def test_as_many_replicas_have_the_plan_itself():
    long = plan(8, layout={"dp_replicate": 8})
    assert replicas_of_plan(long) == 8
    assert next(iter(plans_of_replicas(long, 8))) is long


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        (6, ((1,) * 6, 4)),
        (5, ((2, 2, 2, 1, 1), 3)),
        (7, ((2, 1, 1, 1, 1, 1, 1), 3)),
        (3, ((1, 1, 1), 8)),
        (1, ((1,), 24)),
        (12, ((1,) * 12, 2)),
    ],
)
def test_the_batch_is_cut_evenly_where_that_can_be(replicas, expected):
    assert shares(plan(8, layout={"dp_replicate": 8}), replicas) == expected


def test_every_candidate_takes_the_whole_batch():
    long = plan(8, batch=48, micro_batch=2, layout={"dp_replicate": 4, "dp_shard": 2}, sharding="zero1")
    for replicas in range(1, 9):
        for found in plans_of_replicas(long, replicas):
            (layout,) = found.layouts.values()
            assert layout.grid.dp_replicate == replicas
            assert layout.grid.dp_shard == 2
            assert 48 % sequences_together(found) == 0
            assert layout.batch_share is None or min(layout.batch_share) >= 1


def test_experts_of_a_replica_stay_with_it():
    layout = {"dp_replicate": 2, "tp": 4, "ep": 4}
    long = plan(8, model="mixtral-8x7b", layout=layout)
    (found,) = next(iter(plans_of_replicas(long, 1))).layouts.values()
    assert found.experts.ep == 4
    assert found.experts.edp_replicate == 1


def test_states_that_replicas_share_cannot_lose_one():
    long = plan(8, layout={"dp_replicate": 8})
    states = long.states.model_copy(update={"optimizer": ("dp_replicate",)})
    with pytest.raises(InputError, match="holds the only copy of its shard"):
        next(iter(plans_of_replicas(long.model_copy(update={"states": states}), 7)))
