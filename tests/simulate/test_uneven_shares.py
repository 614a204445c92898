"""Uneven shares of batch and states: equal ones cost what none cost, unlike ones as much as the rank with most."""

import pytest

from meshwright.cost.operators.price_plans import program_prices
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.resolve import resolve, resolve_with
from meshwright.simulate.plan_estimate import lower_and_simulate, simulated_estimate

SHAPES = [
    {"layout": {"dp_replicate": 4, "tp": 2}},
    {"layout": {"pp": 2, "dp_shard": 4}, "sharding": "zero1"},
    {"layout": {"dp_shard": 4, "cp": 2}, "sharding": "zero3"},
    {"layout": {"pp": 2, "dp_shard": 4}, "sharding": "zero2", "pipeline": {"schedule": "zb-h1"}},
]


def uniform(micro_batch=1, batch=64, **keys):
    data = {
        "plan": 1,
        "model": "llama-3.1-8b",
        "cluster": "h200-sxm-141gb x 8",
        "stack": "meshwright",
        "workload": {"seq_len": 4096, "global_batch": batch},
    }
    pipeline = {"micro_batch": micro_batch} | keys.pop("pipeline", {})
    return resolve(ShortPlan.model_validate(data | keys | {"pipeline": pipeline}))


def shared(resolved, **shares):
    """Return the plan with shares in its only layout."""
    long, setting = resolved.long, resolved.setting
    ((name, layout),) = long.layouts.items()
    plan = long.model_copy(update={"layouts": {name: layout.model_copy(update=shares)}})
    return resolve_with(plan, setting.model, setting.cluster, setting.stack)


@pytest.mark.parametrize("keys", SHAPES, ids=str)
def test_equal_shares_of_the_batch_are_a_micro_batch(keys):
    usual = uniform(micro_batch=2, **keys)
    found = shared(uniform(**keys), batch_share=(2, 2, 2, 2))
    one, other = (simulated_estimate(of.long, of.setting) for of in (usual, found))
    assert one.parts == pytest.approx(other.parts)
    assert one.ledgers == other.ledgers


@pytest.mark.parametrize("keys", SHAPES, ids=str)
def test_the_replica_with_most_sequences_decides(keys):
    """As many micro-batches of as many sequences on all replicas take as long and as much memory."""
    most = uniform(micro_batch=3, batch=96, **keys)
    found = shared(uniform(**keys), batch_share=(1, 3, 2, 2))
    one, other = (simulated_estimate(of.long, of.setting) for of in (most, found))
    assert sum(one.parts.values()) == pytest.approx(sum(other.parts.values()))
    assert one.ledgers == other.ledgers


def test_the_largest_shard_decides():
    usual = uniform(layout={"dp_shard": 8}, sharding="zero3")
    program, even = lower_and_simulate(usual.long, usual.setting)
    found = shared(usual, state_share=(2, 2, 1, 1, 1, 1, 0, 0))
    uneven, step = lower_and_simulate(found.long, found.setting)
    for kind in ("parameter", "gradient", "optimizer"):
        assert uneven.held_bytes(0, kind) == pytest.approx(2 * program.held_bytes(0, kind), rel=1e-3)
    assert step.step_s > even.step_s
    (gather, *_) = uneven.bodies[0, "F"][0].overlapped
    twice = program_prices(program, usual.setting).collective(
        type(gather)(gather.kind, gather.axes, 2 * gather.logical_bytes, gather.what)
    )
    assert program_prices(uneven, found.setting).collective(gather) == twice


def test_equal_weights_are_even():
    usual = uniform(layout={"dp_shard": 8}, sharding="zero2")
    found = shared(usual, state_share=(5,) * 8)
    one, other = (simulated_estimate(of.long, of.setting) for of in (usual, found))
    assert one.parts == pytest.approx(other.parts)
    assert one.ledgers == other.ledgers
