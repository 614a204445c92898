"""The short plan nearest to a long one: spelling is no difference, stages stand beside it, everything else is named."""

import pytest
from plan_cases import DENSE, SPARSE, short_plan

from meshwright.plans.forms.conversion import expand, shorten
from meshwright.plans.forms.long import DeviceGroup, LayerRule
from meshwright.plans.forms.nearest_short import nearest_short

SHORTS = [
    (DENSE, short_plan()),
    (DENSE, short_plan({"dp_replicate": 64}, sharding="none", recompute="full")),
    (DENSE, short_plan({"dp_replicate": 4, "dp_shard": 16}, sharding="zero3", gather="per-step")),
    (DENSE, short_plan(pipeline={"schedule": "interleaved-1f1b", "virtual_stages": 2})),
    (DENSE, short_plan({"pp": 4, "dp_shard": 16, "rank_order": ("tp", "cp", "pp", "dp_shard", "dp_replicate")})),
    (SPARSE, short_plan({"dp_replicate": 8, "tp": 8, "ep": 4})),
    (SPARSE, short_plan({"pp": 2, "dp_shard": 16, "cp": 2, "ep": 8}, sharding="zero2")),
]  # fmt: skip


def in_other_words(long):
    """The same plan: other names of layout and group, rules cut in two, sharding over axes of degree 1 said."""
    (layout,) = long.layouts.values()
    (inner,) = {rule for key, rule in long.layers.items() if key not in ("embed", "head")}
    rule = inner.model_copy(update={"layout": "other", "vocabulary": ("tp",)})
    end = LayerRule(layout="other")
    ones = tuple(axis for axis in ("dp_shard", "cp", "dp_replicate") if getattr(layout.grid, axis) == 1)
    optimizer = (*ones, *(axis for axis in long.states.optimizer if axis not in ones))
    return long.model_copy(
        update={
            "groups": {"every": DeviceGroup()},
            "layouts": {"other": layout.model_copy(update={"on": "every", "state_share": "even"})},
            "layers": {"head": end, "0..2": rule, "3..15": rule, "embed": end},
            "states": long.states.model_copy(update={"optimizer": optimizer}),
        }
    )


def with_stages(long, *stages):
    return long.model_copy(update={"pipeline": long.pipeline.model_copy(update={"stages": stages})})


@pytest.mark.parametrize(("architecture", "short"), SHORTS)
def test_a_plan_in_other_words_is_the_same_plan(architecture, short):
    long = expand(short, architecture)
    assert shorten(in_other_words(long)) is None
    nearest = nearest_short(in_other_words(long), architecture)
    assert (nearest.beyond, nearest.stage_layers) == ((), None)
    assert expand(nearest.short, architecture) == long


def test_written_stages_stand_beside_the_short_plan():
    long = expand(short_plan(), DENSE)
    uneven = (("embed", "0..1"), ("2..6",), ("7..11",), ("12..15", "head"))
    nearest = nearest_short(with_stages(long, *uneven), DENSE)
    assert (nearest.short, nearest.stage_layers, nearest.beyond) == (shorten(long), (2, 5, 5, 4), ())


def test_stages_that_are_the_balanced_ones_are_nothing_to_say():
    long = expand(short_plan(), DENSE)
    even = (("embed", "0..3"), ("4..7",), ("8", "9..11"), ("12..15", "head"))
    assert nearest_short(with_stages(long, *even), DENSE).stage_layers is None


def test_what_a_short_plan_has_no_word_for_is_named_by_the_plan_s_own_key():
    long = in_other_words(expand(short_plan({"dp_replicate": 8, "tp": 8, "ep": 4}), SPARSE))
    (layout,) = long.layouts.values()
    mesh = layout.experts.model_copy(update={"edp_shard": 16, "edp_replicate": 1})
    other = long.model_copy(update={"layouts": {"other": layout.model_copy(update={"experts": mesh})}})
    (shard, replicate) = nearest_short(other, SPARSE).beyond
    assert (shard.field, shard.value, shard.suggestion) == ("layouts.other.experts.edp_shard", 16, "2")
    assert (replicate.field, replicate.value) == ("layouts.other.experts.edp_replicate", 1)
