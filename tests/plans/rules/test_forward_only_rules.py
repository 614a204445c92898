"""Rules on training without backward passes: what is refused by name, and what is legal."""

from dataclasses import replace

import pytest
from plan_cases import DENSE, SPARSE, STACK, cluster, graph, long_plan

from meshwright.plans.rules.check_plan import check_plan

ABLE = replace(STACK, optimizers=("adamw", "zo-sgd"), master_types=("fp32", "none"))
SPLIT = {"name": "zo-sgd", "perturbations": "split"}


def problems(architecture=DENSE, devices=64, optimizer="zo-sgd", task="pretrain", **plan):
    made = long_plan(workload={"optimizer": optimizer, "task": task}, **plan)
    found = check_plan(made, graph(architecture), cluster(devices), ABLE)
    return [(p.field, p.value, p.suggestion) for p in found if p.severity == "error"]


LEGAL = [
    {},
    {"sharding": "zero3", "gather": "per-layer"},
    {"pipeline": {"schedule": "gpipe", "micro_batch": 1}},
    {"dtypes": {"master": "fp32"}},
    {"optimizer": SPLIT},
    {"optimizer": {"name": "zo-sgd", "epsilon": 0.01, "weight_decay": 0.1}},
]


@pytest.mark.parametrize("plan", LEGAL, ids=str)
def test_plans_of_forward_passes_are_legal(plan):
    layout = (
        {"dp_replicate": 4, "dp_shard": 4, "tp": 4}
        if "sharding" in plan
        else {"pp": 2, "dp_replicate": 8, "tp": 4}
    )
    assert problems(**{"layout": layout, "sharding": "none"} | plan) == []


WRONG = [
    (
        {"pipeline": {"schedule": "interleaved-1f1b", "virtual_stages": 2}},
        "pipeline.schedule",
        "interleaved-1f1b",
    ),
    ({"pipeline": {"schedule": "zb-h1"}}, "pipeline.schedule", "zb-h1"),
    ({"pipeline": {"schedule": {"name": "1f1b", "in_flight": 4}}}, "pipeline.schedule.in_flight", 4),
    (
        {"pipeline": {"schedule": {"name": "1f1b", "step_validation": "after"}}},
        "pipeline.schedule.step_validation",
        "after",
    ),
    (
        {"pipeline": {"schedule": {"name": "1f1b", "vocabulary": "vocab-1"}}},
        "pipeline.schedule.vocabulary",
        "vocab-1",
    ),
    ({"recompute": "full"}, "recompute", "full"),
    ({"offload": {"activations": 0.5}}, "offload.activations", 0.5),
    ({"offload": {"optimizer": "all"}}, "offload.optimizer", "all"),
    ({"sharding": "zero1"}, "sharding", "zero1"),
    ({"sharding": "zero2"}, "sharding", "zero2"),
    ({"sharding": "zero3", "gather": "per-step"}, "gather", "per-step"),
    ({"dtypes": {"gradient": "bf16"}}, "dtypes.gradient", "bf16"),
    ({"dtypes": {"reduce": "bf16"}}, "dtypes.reduce", "bf16"),
    ({"dtypes": {"first_moment": "bf16"}}, "dtypes.first_moment", "bf16"),
    ({"task": "lora"}, "workload.optimizer", "zo-sgd"),
    ({"optimizer": {"name": "zo-sgd", "epsilon": 0.0}}, "workload.optimizer.epsilon", 0.0),
    ({"optimizer": {"name": "zo-sgd", "perturbations": "half"}}, "workload.optimizer.perturbations", "half"),
    ({"optimizer": {"name": "adamw", "perturbations": "split"}}, "workload.optimizer.perturbations", "split"),
]


@pytest.mark.parametrize(("plan", "field", "value"), WRONG, ids=lambda part: str(part))
def test_what_has_no_meaning_is_refused_by_name(plan, field, value):
    layout = {"pp": 2, "dp_replicate": 2, "dp_shard": 4, "tp": 4}
    found = problems(**{"layout": layout, "sharding": "none"} | plan)
    assert (field, value) in [(where, what) for where, what, _ in found]
    assert all(hint for where, what, hint in found if (where, what) == (field, value))


def test_split_needs_two_equal_halves():
    found = problems(
        devices=48, optimizer=SPLIT, layout={"pp": 4, "dp_replicate": 3, "tp": 4}, sharding="none"
    )
    wanted = ("workload.optimizer.perturbations", "split", "layout.dp_replicate: 4, or perturbations: both")
    assert wanted in found


def test_halves_share_no_experts():
    layout = {"dp_replicate": 8, "ep": 8, "tp": 8}
    assert problems(SPARSE, optimizer=SPLIT, layout=layout, sharding="none") == []
    wide = {"dp_replicate": 2, "ep": 8, "tp": 4, "pp": 8}
    assert ("layout.ep", 8) in [
        (f, v) for f, v, _ in problems(SPARSE, optimizer=SPLIT, layout=wide, sharding="none")
    ]
    order = {"rank_order": ("dp_replicate", "tp", "cp", "dp_shard", "pp")}
    found = problems(SPARSE, optimizer=SPLIT, layout=layout | order, sharding="none")
    assert "layout.rank_order" in [field for field, *_ in found]
