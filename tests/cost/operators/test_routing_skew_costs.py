"""What a workload says of routing moves time, exchange and memory of experts, and of nothing else."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from lattice_plans import MODELS, family

from meshwright.cost.closed_form.evaluate_plans import evaluate, mode_groups
from meshwright.cost.operators.operator_times import operator_seconds
from meshwright.model.operators.operator_types import ExpertActivation, ExpertLinear, Linear
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.program.activation_bytes import input_bytes
from meshwright.program.expert_dispatch.expert_load import expert_load
from meshwright.program.pass_items import Collective
from meshwright.workload.expert_routing import Routing

MODEL = MODELS["sparse"]
EXPERTS = MODEL.architecture.moe.experts
UNEVEN = ((6.0, *[1.0] * (EXPERTS // 2 - 1)) * 2,)
"""The first expert of either half is chosen six times as often as the others."""


def prices(routing):
    """Prices of a plan with as many ranks as experts, told so of routing."""
    chosen = family("sparse", "h100-sxm-80gb x 8", "generic", 1, seed=0)
    layout = chosen.plans[0].layout.model_copy(
        update={"pp": 1, "tp": 1, "cp": 1, "dp_replicate": 1, "dp_shard": 8, "ep": EXPERTS, "etp": 1}
    )
    pipeline = chosen.plans[0].pipeline.model_copy(update={"virtual_stages": 1, "schedule": "1f1b"})
    plan = chosen.plans[0].model_copy(update={"layout": layout, "pipeline": pipeline, "sharding": "zero1"})
    workload = replace(chosen.setting.workload, routing=Routing(routing))
    (group,) = mode_groups(from_shorts([plan]), replace(chosen.setting, workload=workload))
    return group.prices


def of_experts(found):
    """Seconds and kept bytes of operators, and seconds of exchanges, of the busiest rank."""
    local = found.local
    operators = [op for block in found.blocks for op in block.operators]
    experts = [op for op in operators if isinstance(op, ExpertLinear | ExpertActivation)]
    seconds = [operator_seconds(op, phase, local) for op in experts for phase in ("F", "I")]
    kept = [input_bytes(op, local.shape, local.mode, local.stack) for op in experts]
    exchanged = [
        found.collective(item)
        for items in found.items_of.values()
        for item in items
        if isinstance(item, Collective) and item.axes[-1] in ("ep", "etp")
    ]
    assert len(experts) >= 2
    assert exchanged
    return np.concatenate([np.ravel(number) for number in (*seconds, *kept, *exchanged)])


def test_the_busiest_rank_is_as_any_rank_with_more_tokens():
    workload = family("sparse", "h100-sxm-80gb x 8", "generic", 1, seed=0).setting.workload
    ratio = expert_load(replace(workload, routing=Routing(UNEVEN)), MODEL.architecture, EXPERTS, 1).busiest
    assert ratio > 1.5
    assert of_experts(prices(UNEVEN)) == pytest.approx(of_experts(_scaled(ratio)), rel=1e-12)


def _scaled(ratio):
    """Balanced prices of as many times the tokens."""
    found = prices("balanced")
    shape = found.local.shape
    more = replace(shape, micro_batch=shape.micro_batch * ratio)
    items = {
        key: tuple(
            replace(item, logical_bytes=item.logical_bytes * ratio) if isinstance(item, Collective) else item
            for item in items
        )
        for key, items in found.items_of.items()
    }
    return replace(found, local=replace(found.local, shape=more), items_of=items)


def test_nothing_else_takes_longer():
    skewed, even = prices(UNEVEN), prices("balanced")
    linear = next(op for block in even.blocks for op in block.operators if isinstance(op, Linear))
    assert operator_seconds(linear, "F", skewed.local) == operator_seconds(linear, "F", even.local)


def test_plans_are_slower_and_hold_more_the_more_routing_is_skewed():
    chosen = family("sparse", "h100-sxm-80gb x 8", "generic", 20, seed=0)
    plans = from_shorts(list(chosen.plans))
    found = [
        evaluate(
            plans, replace(chosen.setting, workload=replace(chosen.setting.workload, routing=Routing(said)))
        )
        for said in ("balanced", 0.5, 1.5)
    ]
    cut = plans.ep > 1
    assert 0 < cut.sum() < len(plans)
    for less, more in pairwise(found):
        assert (less.step_s[cut] < more.step_s[cut]).all()
        assert (less.total_bytes[cut] <= more.total_bytes[cut]).all()
        assert (less.step_s[~cut] == more.step_s[~cut]).all()
    even = Routing(((5.0,) * EXPERTS,))
    same = evaluate(plans, replace(chosen.setting, workload=replace(chosen.setting.workload, routing=even)))
    assert same.step_s == pytest.approx(found[0].step_s, rel=1e-12)
