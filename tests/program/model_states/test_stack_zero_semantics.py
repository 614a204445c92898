from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from lowered_programs import lowered, short_plan, short_plans

from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.program.checks.validate_program import validate
from meshwright.program.model_states.stack_zero_semantics import effective_sharding, exchange_timing
from meshwright.stack.load import load_stack

PLAIN = load_stack("megatron-core")
GATHERS = ("per-layer", "per-micro-batch", "per-step")


def test_without_facts_a_name_is_what_it_says():
    for sharding, gather, pipeline in product(SHARDINGS, GATHERS, (False, True)):
        assert effective_sharding(sharding, PLAIN) == sharding
        found = exchange_timing(sharding, gather, PLAIN, pipeline=pipeline)
        assert found.gather == (gather if sharding == "zero3" else "never")
        assert (found.reduce == "per-micro-batch") == (found.gather == "per-layer")


def test_under_a_pipeline_gradients_wait_for_the_last_micro_batch():
    for sharding in SHARDINGS:
        each = replace(PLAIN, reduces_each_micro_batch=("none", "zero2", "zero3"))
        with_one, without = (
            exchange_timing(sharding, "per-step", each, pipeline=p).reduce for p in (True, False)
        )
        assert with_one == "per-step"
        assert without == ("per-step" if sharding == "zero1" else "per-micro-batch")


@pytest.mark.parametrize(("pp", "gather"), [(1, "per-micro-batch"), (2, "per-step")])
@pytest.mark.parametrize("stack", ["torchtitan", "accelerate"])
def test_zero2_of_fsdp_is_zero3_in_all_but_the_name(stack, pp, gather):
    layout = {"dp_shard": 4, "pp": pp}
    named, meant = (
        lowered(short_plan("dense", layout, stack=stack, **keys)).program
        for keys in ({"sharding": "zero2"}, {"sharding": "zero3", "gather": gather})
    )
    assert named.signature() == meant.signature()
    per_layer = lowered(short_plan("dense", layout, stack=stack, sharding="zero3")).program
    assert named.held_bytes(0, "parameter") == per_layer.held_bytes(0, "parameter")


def test_parameters_that_stay_whole_are_gathered_once_and_a_layer_ahead():
    plan = short_plan("dense", {"dp_shard": 4}, sharding="zero2")
    bodies = lowered(plan, zero2_cuts_parameters=True, gathers_layers_ahead=True).program.bodies
    at_once = lowered(plan, zero2_cuts_parameters=True).program.bodies

    def gathered(body, alone):
        return sum(
            segment.count * c.logical_bytes
            for segment in body
            for c in segment.overlapped
            if c.kind == "all-gather" and (segment.block is None) == alone
        )

    (first, *_) = bodies[0, "F"]
    hidden, bare = gathered(bodies[0, "F"], alone=False), gathered(bodies[0, "F"], alone=True)
    assert bare == sum(c.logical_bytes for c in first.overlapped) > 0
    assert hidden > 5 * bare
    assert (gathered(at_once[0, "F"], alone=False), gathered(at_once[0, "F"], alone=True)) == (
        0,
        hidden + bare,
    )
    for body in (bodies[0, "B"], at_once[0, "B"]):
        assert gathered(body, alone=False) == gathered(body, alone=True) == 0


@settings(max_examples=30)
@given(short=short_plans())
def test_a_program_keeps_its_laws_whatever_its_stack_says_of_exchanges(short):
    plan = lowered(
        short,
        zero2_cuts_parameters=True,
        gathers_layers_ahead=True,
        reduces_each_micro_batch=("none", "zero2", "zero3"),
        recomputes_exchanges=True,
    )
    assert validate(plan.program, plan.model) == []
