"""Models with an encoder compute what one device does, and keep what the ledger says."""

from itertools import product

import pytest

pytest.importorskip("torch")

from encoder_models import small_encoder_model
from local_plans import SEQ_LEN, error, reference, run, small
from test_live_bytes import held_against_the_ledger

MODELS = ("t5", "t5 1.1", "qwen2_5_vl")
LAYOUTS = {
    "one device": {},
    "tp": {"tp": 2},
    "sequence parallel": {"tp": 2, "sequence_parallel": True},
    "sharded layer by layer": {"dp_shard": 2, "sharding": "zero3", "gather": "per-layer"},
    "sharded": {"dp_shard": 2, "sharding": "zero3", "gather": "per-micro-batch", "tp": 2},
    "replicas": {"dp_replicate": 2, "dp_shard": 2, "sharding": "zero2"},
}
RECOMPUTES = ("none", "full", ("layernorm",), ("mlp",), ("core_attn",), ("layernorm", "mlp", "core_attn"))


def tiny(name, layers=2):
    return small_encoder_model(name, layers, 2, SEQ_LEN)


def held_against_one_device(case):
    results, gradients, parameters, *_ = run(case, steps=2)
    expected, expected_gradients, expected_parameters = reference(case, steps=2)
    for found, (loss, norm) in zip(results, expected, strict=True):
        assert (found.loss, found.norm) == pytest.approx((loss, norm), rel=1e-9)
    assert error(gradients, expected_gradients) < 1e-9
    assert error(parameters, expected_parameters) < 1e-9


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(("name", "layout"), list(product(MODELS, LAYOUTS)))
def test_every_layout_computes_what_one_device_does(name, layout):
    held_against_one_device(small(tiny(name), **LAYOUTS[layout]))


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("name", "recompute"), list(product(MODELS, RECOMPUTES[1:])), ids=str)
def test_recomputed_layers_of_the_encoder_compute_the_same(name, recompute):
    held_against_one_device(small(tiny(name), recompute=recompute, tp=2, sequence_parallel=True))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_a_vision_tower_stands_on_the_first_of_several_stages(schedule):
    held_against_one_device(small(tiny("qwen2_5_vl", layers=4), {"schedule": schedule}, pp=2, tp=2))


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(
    ("name", "recompute", "degrees"),
    list(product(MODELS, RECOMPUTES, ({}, {"tp": 2}, {"tp": 2, "sequence_parallel": True}))),
    ids=str,
)
def test_passes_keep_what_the_ledger_says(name, recompute, degrees):
    held_against_the_ledger(small(tiny(name), recompute=recompute, **degrees))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_a_vision_tower_keeps_for_its_weights_what_the_ledger_says(sequence_parallel):
    plan = {"pp": 2, "tp": 2, "sequence_parallel": sequence_parallel}
    held_against_the_ledger(small(tiny("qwen2_5_vl", layers=4), {"schedule": "zb-h1"}, **plan))
