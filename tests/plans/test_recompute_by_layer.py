"""What each layer recomputes: read from rules, written as rules, told, and drawn for a small copy."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import changed, long_plan, recompute

from meshwright.plans.forms.conversion import shorten, shorten_ignoring_layers
from meshwright.plans.layers.recompute_by_layer import (
    format_layer_recomputes,
    layer_recomputes,
    sampled,
    with_layer_recomputes,
)

LAYERS = 16
of_layers = st.lists(recompute, min_size=LAYERS, max_size=LAYERS).map(tuple)


@settings(max_examples=60, deadline=None)
@given(of_layers)
def test_what_is_written_is_read_again(choices):
    plan = with_layer_recomputes(long_plan(), choices)
    assert layer_recomputes(plan, LAYERS) == choices
    runs = 1 + sum(a != b for a, b in pairwise(choices))
    assert len(plan.layers) == runs + 2
    assert with_layer_recomputes(plan, choices) == plan


@settings(max_examples=20, deadline=None)
@given(recompute)
def test_one_choice_for_all_layers_is_the_word_of_the_short_form(choice):
    plan = with_layer_recomputes(long_plan(), (choice,) * LAYERS)
    assert plan == long_plan(recompute=choice)
    assert shorten(plan).recompute == choice


def test_the_first_rule_that_matches_says_it():
    main = {"layout": "main"}
    rules = {"embed": main, "3": main | {"recompute": "full"}, "0..15": main, "head": main}
    found = layer_recomputes(changed(long_plan(), layers=rules), LAYERS)
    assert found == ("none",) * 3 + ("full",) + ("none",) * 12


@settings(max_examples=60, deadline=None)
@given(of_layers)
def test_without_stages_and_the_layers_own_choices_there_is_a_short_form(choices):
    plan = with_layer_recomputes(long_plan(), choices)
    stages = plan.pipeline.model_copy(update={"stages": (("embed", "0..6"), ("7..15", "head"))})
    short = shorten_ignoring_layers(plan.model_copy(update={"pipeline": stages}))
    assert short is not None
    assert short == shorten(long_plan(recompute=choices[0]))
    assert (shorten(plan) is None) == (len(set(choices)) > 1)


def test_rules_that_differ_in_more_have_no_short_form():
    main = {"layout": "main"}
    spread = {"embed": main, "0..7": main, "8..15": main | {"vocabulary": ("tp",)}, "head": main}
    assert shorten_ignoring_layers(changed(long_plan(), layers=spread)) is None


def test_ranges_are_told_together():
    assert format_layer_recomputes(("full",) * 4) == "full"
    assert format_layer_recomputes((("mlp", "core_attn"),)) == "mlp+core_attn"
    assert (
        format_layer_recomputes(("full", "full", "none", "full")) == "full in layers 0..1 3, none in layer 2"
    )


@settings(max_examples=100, deadline=None)
@given(st.lists(recompute, min_size=1, max_size=40), st.integers(1, 12))
def test_a_sample_has_every_choice_that_there_is_room_for(choices, count):
    found = sampled(choices, count)
    assert len(found) == count
    assert len(set(found)) == min(count, len(set(choices)))
    assert set(found) <= set(choices)
