"""Rules of layers that recompute different things, beside the stack that is to do it."""

from dataclasses import replace

from plan_cases import DENSE, STACK, changed, cluster, graph, long_plan

from meshwright.plans.rules.check_plan import check_plan

ABLE = replace(STACK, varies_by_layer=("recompute",))
SETS = ("mlp", "core_attn")


def problems(stack, **recompute_of):
    """What is wrong with a plan whose ranges recompute these things."""
    main = {"layout": "main"}
    rules = {key.replace("_", "..").strip("."): main | {"recompute": of} for key, of in recompute_of.items()}
    plan = changed(long_plan(), layers={"embed": main, **rules, "head": main})
    return check_plan(plan, graph(DENSE), cluster(64), stack)


def test_a_stack_may_know_what_each_layer_recomputes():
    assert problems(ABLE, _0_3="full", _4_15="none") == []
    assert problems(ABLE, _0_3=SETS, _4_4="full", _5_15="selective") == []


def test_a_stack_that_recomputes_all_layers_alike_is_told_so_once():
    (problem,) = problems(STACK, _0_3="full", _4_9=SETS, _10_15="full")
    assert problem.field == "layers"
    assert problem.value == "full in layers 0..3 10..15, mlp+core_attn in layers 4..9"
    assert problem.rule == "test-stack@1.0 recomputes all layers alike"
    assert problem.suggestion == "recompute: full for all of them, or stack: meshwright"


def test_ranges_that_recompute_the_same_ask_nothing_of_the_stack():
    assert problems(STACK, _0_3="full", _4_15="full") == []


def test_what_a_range_can_not_recompute_is_named_with_the_range():
    found = problems(ABLE, _0_3="full", _4_15=("moe", "shared_experts"))
    assert {(p.field, p.value) for p in found} == {
        ("layers.4..15.recompute", "moe"),
        ("layers.4..15.recompute", "shared_experts"),
    }
