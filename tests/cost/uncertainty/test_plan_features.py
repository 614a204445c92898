"""The features of plans, and the errors that are drawn for them."""

import numpy as np
import pytest

from meshwright.cluster.load import load_cluster
from meshwright.cost.uncertainty.constants_error import log_responses
from meshwright.cost.uncertainty.error_parts import error_parts
from meshwright.cost.uncertainty.features_error import REPEATED, SLOWER, log_errors
from meshwright.cost.uncertainty.plan_features import plan_features, seen_features
from meshwright.model.load import load_model
from meshwright.plans.arrays.short_plans import from_shorts
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.setting import Setting
from meshwright.stack.load import load_stack
from meshwright.workload.workload import Workload

CLUSTER = "h100-sxm-80gb x 16"


def setting(stack="megatron-core", cluster=CLUSTER):
    workload = Workload(seq_len=4096, global_batch=32)
    return Setting(load_model("llama-3.1-8b"), load_cluster(cluster), workload, load_stack(stack))


def plan(layout, pipeline=None, **choices):
    data = {
        "plan": 1,
        "model": "llama-3.1-8b",
        "cluster": CLUSTER,
        "workload": {"seq_len": 4096, "global_batch": 32},
        "layout": layout,
        "pipeline": pipeline or {},
        "sharding": "zero1" if layout.get("dp_shard") else "none",
    }
    return ShortPlan.model_validate(data | choices)


@pytest.mark.parametrize(
    ("one", "features"),
    [
        (plan({"dp_shard": 16}, sharding="zero3"), {"zero3", "dp across nodes"}),
        (plan({"dp_replicate": 16}, sharding="none"), {"dp_replicate", "dp across nodes"}),
        (plan({"tp": 8, "dp_shard": 2}, sharding="zero1"), {"tp", "zero1", "dp across nodes"}),
        (
            plan({"tp": 16, "sequence_parallel": False}),
            {"tp", "tp without sequence parallelism", "tp across nodes"},
        ),
        (
            plan({"cp": 8, "dp_shard": 2, "context": "ulysses"}),
            {"cp", "cp ulysses", "zero1", "dp across nodes"},
        ),
        (
            plan({"pp": 2, "dp_shard": 8}, {"schedule": "interleaved-1f1b", "virtual_stages": 2}),
            {"pp", "schedule interleaved-1f1b", "zero1", "pp across nodes"},
        ),
        (
            plan({"pp": 2, "dp_shard": 8}, {"schedule": {"name": "1f1b", "vocabulary": "vocab-1"}}),
            {"pp", "schedule with vocabulary", "zero1", "pp across nodes"},
        ),
        (
            plan({"tp": 8, "pp": 2}, recompute="selective"),
            {"tp", "pp", "recompute selective", "pp across nodes"},
        ),
        (
            plan({"tp": 8, "pp": 2}, recompute=("mlp",)),
            {"tp", "pp", "recompute operators", "pp across nodes"},
        ),
    ],
)
def test_a_plan_has_the_features_of_its_choices(one, features):
    assert set(plan_features(from_shorts([one]), setting())) == features


def test_features_of_many_plans_are_those_of_each():
    several = [
        plan({"tp": 8, "dp_shard": 2}),
        plan({"dp_shard": 16}, sharding="zero3"),
        plan(
            {
                "tp": 2,
                "cp": 2,
                "pp": 2,
                "dp_shard": 2,
                "rank_order": ("cp", "tp", "dp_shard", "pp", "dp_replicate"),
            }
        ),
    ]
    together = plan_features(from_shorts(several), setting())
    for row, one in enumerate(several):
        assert {name for name, mask in together.items() if mask[row]} == set(
            plan_features(from_shorts([one]), setting())
        )


def test_plans_with_equal_features_share_their_errors():
    two = from_shorts([plan({"tp": 4, "dp_shard": 4}), plan({"tp": 2, "dp_shard": 8})])
    errors = log_errors(two, setting(), np.zeros((8, 2)))
    assert errors.shape == (8 * REPEATED, 2)
    assert np.array_equal(errors[:, 0], errors[:, 1])


def test_a_ratio_has_the_width_of_the_features_that_differ():
    two = from_shorts([plan({"tp": 8, "dp_shard": 2}), plan({"cp": 8, "dp_shard": 2})])
    errors = log_errors(two, setting(), np.zeros((256, 2)))
    width = error_parts()["feature seen"].run
    assert (errors[:, 0] - errors[:, 1]).std() == pytest.approx(width * np.sqrt(2), rel=0.05)


def test_a_feature_without_runs_is_wider_and_slower():
    two = from_shorts([plan({"dp_shard": 16}, sharding="zero3"), plan({"dp_shard": 16}, sharding="zero3")])
    known, unknown = (error_parts()[f"feature {how}"].run for how in ("seen", "unseen"))
    seen = log_errors(two, setting(), np.zeros((256, 2)), frozenset(("zero3", "dp across nodes")))
    unseen = log_errors(two, setting(), np.zeros((256, 2)), frozenset(("dp across nodes",)))
    assert unknown > known
    assert seen.mean() == pytest.approx(0, abs=1e-9)
    assert unseen.mean() == pytest.approx(SLOWER * unknown, rel=1e-6)
    none = log_errors(two, setting(), np.zeros((256, 2)), frozenset())
    assert none.mean() == pytest.approx(0, abs=1e-9), (
        "with no runs at all there is nothing to tell features by"
    )


def test_the_doubt_about_the_constants_is_among_the_errors():
    two = from_shorts([plan({"tp": 8, "dp_shard": 2}), plan({"tp": 8, "dp_shard": 2})])
    responses = log_responses(two, setting())
    features = log_errors(two, setting(), np.zeros_like(responses))
    assert log_errors(two, setting(), responses) - features == pytest.approx(
        np.tile(responses, (REPEATED, 1))
    )


def test_runs_of_a_stack_say_which_features_are_known():
    assert {"tp", "pp", "zero1"} <= seen_features()["megatron-core"]
    assert "tp without sequence parallelism" not in seen_features()["megatron-core"]
    assert "torchtitan" not in seen_features()
