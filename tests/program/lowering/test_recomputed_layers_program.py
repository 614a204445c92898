"""Programs of plans whose layers recompute different things."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from lowered_programs import lowered, lowered_long, model, short_plan, short_plans

from meshwright.plans.forms.conversion import expand
from meshwright.plans.layers.recompute_by_layer import with_layer_recomputes
from meshwright.program.checks.validate_program import validate

CHOICES = ("none", "selective", "full", ("mlp",), ("core_attn", "layernorm"))


def mixed(short, of_layers):
    return lowered_long(with_layer_recomputes(expand(short, model(short.model).architecture), of_layers))


@settings(max_examples=20, deadline=None)
@given(short_plans())
def test_one_choice_said_layer_by_layer_is_that_choice_exactly(short):
    whole = lowered(short).program
    long = expand(short, model(short.model).architecture)
    main, inner = long.layers["embed"], long.layers["0..7"]
    ranges = {"embed": main, "0..2": inner, "3": inner, "4..7": inner, "head": long.layers["head"]}
    split = lowered_long(long.model_copy(update={"layers": ranges})).program
    assert split.signature() == whole.signature()
    assert split.block_items == whole.block_items
    assert split == whole


@settings(max_examples=20, deadline=None)
@given(short_plans(), st.integers(0, 2**20))
def test_a_program_of_many_choices_is_sound(short, seed):
    draw = random.Random(seed)
    found = mixed(short, [draw.choice(CHOICES) for _ in range(8)])
    assert validate(found.program, found.model) == []


def test_stages_keep_and_bring_back_what_their_own_layers_say():
    short = short_plan(layout={"pp": 4})
    full, none = (lowered(short.model_copy(update={"recompute": word})).program for word in ("full", "none"))
    both = mixed(short, ["full"] * 4 + ["none"] * 4).program
    assert both.activation_bytes == full.activation_bytes[:2] + none.activation_bytes[2:]
    assert both.working_bytes == full.working_bytes[:2] + none.working_bytes[2:]
    assert both.weight_gradient_bytes == full.weight_gradient_bytes == none.weight_gradient_bytes


def test_layers_of_one_stage_may_differ():
    short = short_plan(layout={"pp": 2})
    full, none = (lowered(short.model_copy(update={"recompute": word})).program for word in ("full", "none"))
    both = mixed(short, ["full", "none", "none", "full", *["none"] * 4]).program
    assert 2 * both.activation_bytes[0] == full.activation_bytes[0] + none.activation_bytes[0]
    assert both.activation_bytes[1] == none.activation_bytes[1]


def test_states_do_not_know_what_is_recomputed():
    short = short_plan("moe", layout={"pp": 2, "dp_shard": 4, "ep": 4}, sharding="zero1")
    assert mixed(short, ["full", "none"] * 4).program.states == lowered(short).program.states


def test_where_layers_recompute_is_part_of_the_signature():
    short = short_plan(layout={"pp": 2})
    early, late = ["full"] * 4 + ["none"] * 4, ["none"] * 4 + ["full"] * 4
    found = {mixed(short, of).program.signature() for of in (early, late, ["full"] * 8, ["none"] * 8)}
    assert len(found) == 4
