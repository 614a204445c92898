import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_cases import changed, long_plan

from meshwright.plans.layers.layer_assignment import (
    balanced_counts,
    layer_rules,
    parse_layer_key,
    stage_layers,
    stage_problems,
)

counts = st.integers(1, 200)


@settings(max_examples=100, deadline=None)
@given(counts, counts)
def test_balanced_stages_hold_all_layers_and_differ_by_one(layers, stages):
    result = balanced_counts(layers, stages)
    assert sum(result) == layers
    assert len(result) == stages
    assert max(result) - min(result) == (1 if layers % stages else 0)


@settings(max_examples=100, deadline=None)
@given(counts, st.integers(3, 200))
def test_the_ends_get_more_only_after_the_middle(layers, stages):
    result = balanced_counts(layers, stages)
    base = layers // stages
    if result[0] > base:
        assert all(count > base for count in result[1:-1])
    assert result[-1] == base


@pytest.mark.parametrize(
    ("layers", "stages", "expected"),
    [
        (80, 4, (20, 20, 20, 20)),
        (61, 4, (15, 15, 16, 15)),
        (62, 4, (15, 16, 16, 15)),
        (63, 4, (16, 16, 16, 15)),
        (3, 2, (2, 1)),
        (7, 1, (7,)),
        (7, 5, (1, 1, 2, 2, 1)),
    ],
)
def test_balanced_counts(layers, stages, expected):
    assert balanced_counts(layers, stages) == expected


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("embed", range(-1, 0)),
        ("head", range(16, 17)),
        ("0..15", range(16)),
        ("5", range(5, 6)),
        ("7..3", range(7, 4)),
        ("-1", None),
        ("0..", None),
        ("1...3", None),
        ("a..b", None),
        ("٣", None),
        ("9" * 5000, None),
        ("encoder.0", None),
    ],
)
def test_layer_keys(key, expected):
    assert parse_layer_key(key, 16) == expected


def with_layers(**rules):
    keys = {key.replace("_", ".."): {"layout": "main"} | rule for key, rule in rules.items()}
    return changed(long_plan(), layers=keys)


def test_the_first_matching_rule_wins():
    plan = with_layers(embed={}, **{"3": {"recompute": "full"}}, **{"0_15": {}}, head={})
    rules = layer_rules(plan, 16)
    assert rules.problems == ()
    assert [rule.recompute for rule in rules.layers].index("full") == 3
    assert [rule.recompute for rule in rules.layers].count("full") == 1
    assert rules.embed is plan.layers["embed"]
    assert rules.head is plan.layers["head"]


def test_gaps_are_named_as_ranges():
    rules = layer_rules(with_layers(**{"3_5": {}, "8": {}}), 16)
    assert [problem.rule for problem in rules.problems] == [
        "no rule for embed",
        "no rule for 0..2",
        "no rule for 6..7",
        "no rule for 9..15",
        "no rule for head",
    ]
    assert rules.layers[4] is not None
    assert rules.layers[6] is None


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("0..16", "the model has 16 layers, 0..15"),
        ("999999999", "the model has 16 layers, 0..15"),
        ("5..3", "ends before it begins"),
        ("encoder.0", "is no layer"),
    ],
)
def test_wrong_keys(key, expected):
    plan = changed(long_plan(), layers={key: {"layout": "main"}})
    problem = layer_rules(plan, 16).problems[0]
    assert problem.field == f"layers.{key}"
    assert expected in problem.rule


def test_a_rule_that_no_layer_gets_is_a_warning():
    plan = with_layers(embed={}, **{"0_15": {}, "3": {}}, head={})
    (problem,) = layer_rules(plan, 16).problems
    assert (problem.field, problem.severity) == ("layers.3", "warning")


def test_unknown_layouts_get_near_names():
    (problem,) = layer_rules(with_layers(embed={"layout": "mian"}, **{"0_15": {}}, head={}), 16).problems
    assert (problem.field, problem.suggestion) == ("layers.embed.layout", "did you mean main?")


def pipeline(placement, stages="balanced", schedule="1f1b"):
    keys = {"placement": placement, "stages": stages, "schedule": {"name": schedule}}
    return changed(long_plan(), pipeline=keys).pipeline


def test_balanced_stages_in_order():
    stages = stage_layers(pipeline((0, 1, 2)), 16)
    assert [(stage.first, stage.last) for stage in stages] == [(0, 5), (5, 11), (11, 16)]
    assert [stage.embed for stage in stages] == [True, False, False]
    assert [stage.head for stage in stages] == [False, False, True]


def test_written_stages():
    written = pipeline((0, 1, 2), (("embed",), ("0..7", "8"), ("9..15", "head")))
    assert stage_problems(written, 16) == []
    stages = stage_layers(written, 16)
    assert [(stage.first, stage.count) for stage in stages] == [(0, 0), (0, 9), (9, 7)]
    assert [(stage.embed, stage.head) for stage in stages] == [(True, False), (False, False), (False, True)]


@pytest.mark.parametrize("stages", ["balanced", (("embed", "0..7"), ("8..15", "head"))])
def test_each_chain_of_stages_holds_the_whole_model(stages):
    two_ways = pipeline((0, 1, 1, 0), stages, "dualpipe")
    assert stage_problems(two_ways, 16) == []
    held = stage_layers(two_ways, 16)
    assert [(stage.first, stage.last, stage.embed, stage.head) for stage in held] == [
        (0, 8, True, False),
        (8, 16, False, True),
    ] * 2


@pytest.mark.parametrize(
    ("placement", "stages", "layers", "rule", "suggestion"),
    [
        ((0, 1, 2, 3, 3, 2, 1, 0), "balanced", 3, "pp·virtual_stages / 2 = 4 stages > 3 layers", "pp: 2, "),
        ((0, 1, 1), "balanced", 16, "2 chains of equal length", "a placement of 4 stages"),
        (
            (0, 1, 1, 0),
            (("embed", "0..3"), ("4..7",), ("8..11",), ("12..15", "head")),
            16,
            "4 stages, but placement names 4, 2 in each chain",
            "write 2 stages or a placement of 8",
        ),
    ],
)
def test_wrong_stages_of_two_chains(placement, stages, layers, rule, suggestion):
    (problem,) = stage_problems(pipeline(placement, stages, "dualpipe"), layers)
    assert rule in problem.rule
    assert suggestion in problem.suggestion


def test_a_stage_with_the_head_only():
    written = pipeline((0, 1), (("embed", "0..15"), ("head",)))
    assert stage_problems(written, 16) == []
    assert stage_layers(written, 16)[1].first == 16


def test_more_stages_than_layers():
    (problem,) = stage_problems(pipeline((0, 1, 2)), 2)
    assert problem.rule == "pp·virtual_stages = 3 stages > 2 layers"


@pytest.mark.parametrize(
    ("stages", "field", "expected"),
    [
        ((("embed", "0..15", "head"),), "pipeline.stages", "1 stages, but placement names 2"),
        ((("embed", "0..7"), ("9..15", "head")), "pipeline.stages.1", "8 comes next"),
        ((("embed", "0..7"), ("7..15", "head")), "pipeline.stages.1", "8 comes next"),
        ((("0..7",), ("8..15", "head")), "pipeline.stages.0", "embed comes next"),
        ((("embed", "0..15", "head"), ("3",)), "pipeline.stages.1", "nothing comes next"),
        ((("embed", "0..7"), ("8..15",)), "pipeline.stages", "head and what follows"),
        ((("embed", "0..15", "head"), ()), "pipeline.stages.1", "an empty stage"),
        ((("embed", "0..7"), ("8..19", "head")), "pipeline.stages.1", "the model has 16 layers"),
        ((("embed", "0..7"), ("8-15", "head")), "pipeline.stages.1", "is no layer"),
    ],
)
def test_wrong_stages(stages, field, expected):
    found = stage_problems(pipeline((0, 1), stages), 16)
    assert any(problem.field == field and expected in problem.rule for problem in found)
