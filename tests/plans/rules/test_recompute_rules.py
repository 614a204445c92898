"""Rules of layers that recompute different things, beside the stack that is to do it."""

from dataclasses import replace

from plan_cases import DENSE, STACK, changed, cluster, graph, long_plan

from meshwright.plans.rules.check_plan import check_plan

ABLE = replace(STACK, varies_by_layer=("recompute",))
FIRST = replace(ABLE, recomputed_layers="first")
SETS = ("mlp", "core_attn")


def ranged(layout, recompute_of):
    main = {"layout": "main"}
    rules = {key.replace("_", "..").strip("."): main | {"recompute": of} for key, of in recompute_of.items()}
    return changed(long_plan(layout), layers={"embed": main, **rules, "head": main})


def problems(stack, layout=None, **recompute_of):
    """What is wrong with a plan whose ranges recompute these things."""
    return check_plan(ranged(layout, recompute_of), graph(DENSE), cluster(64), stack)


def test_a_stack_may_know_what_each_layer_recomputes():
    assert problems(ABLE, _0_3="full", _4_15="none") == []
    assert problems(ABLE, _0_3=SETS, _4_4="full", _5_15="selective") == []


def test_a_stack_that_recomputes_all_layers_alike_is_told_so_once():
    (problem,) = problems(STACK, _0_3="full", _4_9=SETS, _10_15="full")
    assert problem.field == "layers"
    assert problem.value == "full in layers 0..3 10..15, mlp+core_attn in layers 4..9"
    assert problem.rule == "test-stack@1.0 recomputes all layers alike"
    assert problem.suggestion == "recompute: full for all of them, or stack: meshwright"


def test_a_stack_may_run_the_first_layers_of_each_stage_again():
    assert problems(FIRST, {"dp_shard": 64}, _0_3="full", _4_15="none") == []
    two = {"pp": 2, "dp_shard": 32}
    assert problems(FIRST, two, _0_3="full", _4_7="none", _8_11="full", _12_15="none") == []
    (problem,) = problems(FIRST, two, _0_3="full", _4_15="none")
    assert (problem.field, problem.value) == ("layers", "full in layers 0..3, none in layers 4..15")
    assert "all of the first n layers of each stage, n alike for all stages" in problem.rule
    assert problem.suggestion == "n = 4: full in layers 0..3 8..11, none in layers 4..7 12..15"


def test_the_suggestion_changes_the_fewest_layers():
    (uneven,) = problems(
        FIRST, {"pp": 2, "dp_shard": 32}, _0_3="full", _4_7="none", _8_10="full", _11_15="none"
    )
    assert uneven.suggestion == "n = 4: full in layers 0..3 8..11, none in layers 4..7 12..15"
    (most,) = problems(FIRST, _0_1="none", _2_15="full")
    assert most.suggestion == "recompute: full for all of them"
    (sets,) = problems(FIRST, _0_1="full", _2_15=SETS)
    assert sets.suggestion == "recompute: mlp+core_attn for all of them"


def test_stages_that_hold_not_all_layers_are_named_alone():
    plan = ranged({"dp_shard": 64}, {"_0_3": "full", "_4_15": "none"})
    missing = plan.pipeline.model_copy(update={"stages": (("embed", "0..3"),)})
    found = check_plan(plan.model_copy(update={"pipeline": missing}), graph(DENSE), cluster(64), FIRST)
    assert {problem.field for problem in found} == {"pipeline.stages"}


def test_ranges_that_recompute_the_same_ask_nothing_of_the_stack():
    assert problems(STACK, _0_3="full", _4_15="full") == []


def test_what_a_range_can_not_recompute_is_named_with_the_range():
    found = problems(ABLE, _0_3="full", _4_15=("moe", "shared_experts"))
    assert {(p.field, p.value) for p in found} == {
        ("layers.4..15.recompute", "moe"),
        ("layers.4..15.recompute", "shared_experts"),
    }
