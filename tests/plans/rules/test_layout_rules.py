"""Rules on plans of several layouts: each that is broken is named with its key, its equation and a suggestion."""

from dataclasses import replace

import pytest
from plan_cases import DENSE, SPARSE, STACK, changed, graph, long_plan

from meshwright.cluster.load import load_cluster
from meshwright.plans.files.plan_file import dump_plan, parse_plan
from meshwright.plans.forms.conversion import shorten
from meshwright.plans.layers.plan_of_layout import plan_of_layout, plan_of_main_layout, sequences_together
from meshwright.plans.rules.check_plan import check_plan

ABLE = replace(STACK, varies_by_layer=("layout", "recompute"))
ORDER = ("tp", "cp", "dp_shard", "dp_replicate", "pp")
ZERO1 = {"optimizer": ("dp_shard", "cp")}


def layout(**keys):
    degrees = {axis: keys.pop(axis) for axis in ("dp_replicate", "dp_shard", "cp", "tp") if axis in keys}
    return {"grid": degrees, "order": ORDER, "sequence_parallel": degrees.get("tp", 1) > 1} | keys


A, B = layout(tp=4, dp_replicate=4), layout(tp=2, dp_shard=8, states=ZERO1)
RANGES = {"embed": "a", "0..7": "a", "8..15": "b", "head": "b"}


def plan(layouts=None, ranges=None, pp=4, devices=64, **keys):
    """A plan of two layouts on four pipeline ranks of 16 devices."""
    layers = {key: {"layout": name} for key, name in (ranges or RANGES).items()}
    found = long_plan({"pp": pp, "dp_replicate": devices // pp}, cluster=f"h100-sxm-80gb x {devices}")
    return changed(found, layouts=layouts or {"a": A, "b": B}, layers=layers, states={}, **keys)


def problems(of, architecture=DENSE, stack=ABLE, devices=64, **keys):
    cluster = load_cluster(f"h100-sxm-80gb x {devices}")
    return check_plan(of, graph(architecture), cluster, stack, **keys)


def test_a_legal_plan_of_two_layouts():
    assert problems(plan()) == []


def test_each_layout_is_read_as_the_only_one():
    found = plan()
    one, other = (plan_of_layout(found, name) for name in ("a", "b"))
    assert (one.sharding, other.sharding) == ("none", "zero1")
    assert {rule.layout for rule in other.layers.values()} == {"b"}
    assert sequences_together(found) == 8
    assert (one.pipeline.micro_batch, other.pipeline.micro_batch) == (2, 1)
    assert plan_of_main_layout(found) == one


def test_a_plan_of_one_layout_is_itself():
    usual = long_plan()
    assert plan_of_layout(usual, "main") is usual


def test_files_of_several_layouts_are_read_as_they_were_written():
    found = plan()
    assert parse_plan(dump_plan(found)) == found
    assert shorten(found) is None


BROKEN = [
    (plan({"a": A, "b": B, "c": A}), "layouts.c", "no block has this layout", "name it in layers"),
    (plan({"a": A | {"on": "rest"}, "b": B}), "layouts.a.on", "there is no such group", "all"),
    (plan(ranges=RANGES | {"8..15": "x"}), "layers.8..15.layout", "there is no such layout", ""),
    (
        plan(ranges={"embed": "a", "0..7": "a", "4..15": "b", "4..7": "a", "head": "b"}),
        "layers.4..7",
        "earlier rules cover all of it",
        "take it out",
    ),
    (
        plan(ranges={"embed": "a", "0..7": "a", "9..15": "b", "head": "b"}),
        "layers",
        "no rule for 8",
        "add",
    ),
    (
        plan({"a": A, "b": layout(tp=2, dp_replicate=4)}, pp=1, devices=16),
        "layouts.b.grid",
        "dp_replicate·dp_shard·cp·tp = 4·1·1·2 = 8 ≠ dp_replicate·dp_shard·cp·tp = 4·1·1·4 = 16 of a",
        "a grid of 16 devices",
    ),
    (
        plan({"a": layout(tp=2, dp_replicate=4), "b": layout(tp=4, dp_replicate=2)}),
        "layouts",
        "the pipeline ranks have 8 + 8 + 8 + 8 = 32 ≠ 64 devices",
        "grids of 16 devices",
    ),
    (
        plan({"a": A | {"order": ("pp", "tp", "cp", "dp_shard", "dp_replicate")}, "b": B}),
        "layouts.a.order",
        "pp varies slowest",
        "[tp, cp, dp_shard, dp_replicate, pp]",
    ),
    (
        plan({"a": layout(tp=1, dp_replicate=3, cp=1), "b": layout(dp_replicate=2)}, pp=4, devices=12),
        "pipeline.micro_batch",
        "1·3 = 3 sequences move together, and 3 % 2 replicas of b = 1 ≠ 0",
        "micro_batch: 2",
    ),
    (
        plan(groups={"all": {"devices": "h100[0:64]"}}),
        "groups.all.devices",
        "there is no pool h100",
        "h100-sxm",
    ),
    (
        plan(groups={"all": {"devices": "h100-sxm-80gb[0:65]"}}),
        "groups.all.devices",
        "h100-sxm-80gb has devices 0 to 63, so its ranges are within [0:64]",
        '"h100-sxm-80gb[0:64]"',
    ),
    (
        plan(groups={"all": {"devices": "h100-sxm-80gb[0:32]"}}),
        "groups",
        "the groups leave out 32 of 64 devices",
        "all",
    ),
    (
        plan(groups={"all": {"devices": "*"}, "b": {"devices": "h100-sxm-80gb[32:64]"}}),
        "groups.b.devices",
        "shares 32 devices with all",
        "*",
    ),
    (
        plan(groups={"all": {"devices": "h100-sxm-80gb[0:32]"}, "b": {"devices": "h100-sxm-80gb[32:64]"}}),
        "groups",
        "not supported yet",
        "all",
    ),
    (plan(groups={"all": {"devices": "0..7"}}), "groups.all.devices", "there is no pool 0..7", "h100"),
    (plan(groups={"all": {"devices": "[0:8]"}}), "groups.all.devices", "is no selector", "h100"),
    (
        plan({"a": A | {"states": {"parameter": ("dp_replicate",)}}, "b": B}),
        "layouts.a.states",
        "on layout a this is none of",
        "",
    ),
    (plan({"a": A | {"gather": "per-unit"}, "b": B}), "layouts.a.gather", "unit by unit", "per-step"),
    (
        plan(offload={"optimizer": "all"}),
        "offload",
        "model states on hosts with several layouts",
        "activations",
    ),
]


@pytest.mark.parametrize(("of", "field", "rule", "suggestion"), BROKEN, ids=[row[1] for row in BROKEN])
def test_what_is_wrong_is_named(of, field, rule, suggestion):
    devices = int(of.cluster.split()[-1])
    found = [one for one in problems(of, devices=devices) if one.field == field]
    assert any(rule in one.rule and suggestion in one.suggestion for one in found), problems(
        of, devices=devices
    )


def test_everything_is_named_at_once():
    wrong = plan(
        {"a": A | {"on": "rest"}, "b": layout(tp=3, dp_replicate=4), "c": B},
        groups={"all": {"devices": "h100-sxm-80gb[0:99]"}},
    )
    fields = {problem.field for problem in problems(wrong)}
    assert {"layouts.a.on", "layouts.c", "groups.all.devices", "layouts.b.grid.tp", "layouts"} <= fields


def test_a_selector_that_cuts_a_node_unevenly_is_a_warning():
    halves = {"all": {"devices": "h100-sxm-80gb[0:3]+h100-sxm-80gb[3:64]"}}
    (found,) = problems(plan(groups=halves))
    assert found.severity == "warning"
    assert "3 do not divide it" in found.rule


def test_equal_groups_are_one():
    same = {"all": {"devices": "*"}, "again": {"devices": "h100-sxm-80gb[0:32]+h100-sxm-80gb[32:64]"}}
    assert problems(plan({"a": A, "b": B | {"on": "again"}}, groups=same)) == []


def test_tied_tables_of_one_rank_stay_in_one_layout():
    tied = replace(DENSE, tied_embeddings=True)
    assert problems(plan(), tied) == []
    on_one = plan({"a": layout(tp=4, dp_replicate=4), "b": layout(tp=2, dp_replicate=8)}, pp=1, devices=16)
    (problem,) = problems(on_one, tied, devices=16)
    assert problem.field == "layers.head.layout"
    assert "a tied table in two layouts on one pipeline rank" in problem.rule
    narrow = problems(plan(dtypes={"reduce": "bf16"}), tied)
    assert {problem.field for problem in narrow} == {"dtypes.reduce"}
    assert sum("a tied table in two layouts" in problem.rule for problem in narrow) == 1


def test_each_layout_keeps_the_rules_of_the_model():
    found = problems(plan({"a": A, "b": layout(tp=16)}), SPARSE)
    assert {"layouts.a.experts", "layouts.b.experts", "layouts.b.grid.tp"} <= {one.field for one in found}


def test_a_stack_with_one_layout_says_so():
    (problem,) = problems(plan(), stack=replace(ABLE, varies_by_layer=("recompute",)))
    assert (problem.field, problem.severity) == ("layouts", "error")
    assert "has one layout for all layers" in problem.rule
    (remark,) = problems(plan(), stack=replace(ABLE, varies_by_layer=("recompute",)), stack_binds=False)
    assert remark.severity == "warning"
