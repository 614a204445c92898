"""Entries against axes, experts, optimizer and model, and against each other."""

import pytest
from plan_cases import DENSE, SPARSE, cluster, graph, short_plan

from meshwright.plans.forms.conversion import expand
from meshwright.plans.rules.check_plan import check_plan
from meshwright.plans.rules.rule_input import RuleInput
from meshwright.plans.rules.synchronisation.axis_rules import AXIS_RULES
from meshwright.plans.rules.synchronisation.combination_rules import COMBINATION_RULES
from meshwright.program.synchronisation.low_rank_ranks import factor_rank
from meshwright.stack.load import load_stack

TWO = {"dp_replicate": 4, "dp_shard": 8, "tp": 2}
OUTER = {"outer": {"nesterov": {"lr": 0.7}}}
PARAMETER = {"state": "parameter", "over": "dp_replicate"}
GRADIENT = {"state": "gradient", "over": "dp_replicate"}
MOMENT = {"state": "first_moment", "over": "dp_replicate"}
SHARD = {"over": "dp_shard"}
TOKENS = {"state": "expert_token", "over": "ep", "compress": {"lsh": {}}}


def plan(*entries, layout=None, arch=DENSE, **keys):
    keys = {"sharding": "none", "stack": "generic"} | keys
    return expand(short_plan(layout or TWO, synchronise=entries, **keys), arch)


def case(*entries, arch=DENSE, **keys):
    return RuleInput(plan(*entries, arch=arch, **keys), graph(arch), cluster(64), load_stack("generic"))


def problems(*entries, **keys):
    this = case(*entries, **keys)
    return [problem for rule in AXIS_RULES for problem in rule(this)]


EXPERTS = {"arch": SPARSE}
GOOD = [
    ((PARAMETER,), {}),
    ((PARAMETER | OUTER, MOMENT, MOMENT | {"state": "second_moment", "every": 4}), {}),
    ((PARAMETER, PARAMETER | SHARD | {"every": 4}), {}),
    ((GRADIENT | {"compress": {"low_rank": 2}},), {}),
    ((PARAMETER | OUTER,), {"layout": {"dp_shard": 64}, "sharding": "zero1"}),
    ((PARAMETER | {"every": 100} | OUTER, MOMENT), {"sharding": "zero3"}),
    ((PARAMETER | SHARD | {"compress": {"quantise": "int8"}},), {"sharding": "zero3"}),
    ((GRADIENT | SHARD | {"compress": {"sketch": {"width": 0.1}}},), {"sharding": "zero2"}),
    ((GRADIENT | SHARD | {"compress": {"quantise": "int8"}},), {"sharding": "zero1", "layout": {"cp": 64}}),
    ((PARAMETER | OUTER,), EXPERTS | {"layout": {"dp_replicate": 4, "dp_shard": 16, "ep": 8}}),
    (
        (PARAMETER, PARAMETER | SHARD),
        EXPERTS | {"layout": {"dp_replicate": 4, "dp_shard": 8, "tp": 2, "ep": 2}},
    ),
    ((TOKENS,), EXPERTS | {"layout": {"dp_shard": 64, "ep": 8}}),
    ((PARAMETER | {"fragments": 16},), {}),
    ((GRADIENT | {"compress": {"top_k": 0.1, "layers": "3..15"}},), {}),
]


@pytest.mark.parametrize(("entries", "keys"), GOOD)
def test_good_plans_have_no_problem(entries, keys):
    assert problems(*entries, **keys) == []


BAD = [
    (
        (PARAMETER, PARAMETER | {"every": 4}),
        {},
        "1.state",
        "synchronise.0 exchanges parameter over dp_replicate",
    ),
    ((PARAMETER, MOMENT, MOMENT | {"state": "optimizer"}), {}, "2.state", "exchanges first_moment"),
    ((PARAMETER,), {"layout": {"dp_shard": 64}}, "0.over", "dp_replicate = 1: without outer"),
    ((GRADIENT, PARAMETER | OUTER), {}, "1.state", "gradients cross dp_replicate in every step"),
    ((GRADIENT,), {"layout": {"dp_shard": 64}}, "0.over", "dp_replicate = 1: without outer"),
    ((TOKENS,), EXPERTS | {"layout": {"dp_shard": 64}}, "0.state", "ep = 1"),
    ((TOKENS,), {}, "0.state", "has no experts"),
    (
        (PARAMETER | SHARD | {"every": 2},),
        {"sharding": "zero3"},
        "0.every",
        "zero3 shards states over dp_shard",
    ),
    ((PARAMETER | SHARD | OUTER,), {"sharding": "zero1"}, "0.outer", "only compress may be said"),
    ((PARAMETER | SHARD | {"every": 1, "delay": 1},), {"sharding": "zero1"}, "0.delay", "only compress"),
    ((PARAMETER | SHARD | {"merge": 0.5},), {"sharding": "zero2"}, "0.merge", "only compress"),
    (
        (PARAMETER | SHARD | {"merge": 0.5},),
        {"sharding": "zero2", "layout": {"cp": 64}},
        "0.merge",
        "only compress",
    ),
    (
        (PARAMETER | SHARD | {"compress": {"top_k": 0.1}},),
        {"sharding": "zero3"},
        "0.compress",
        "carries values",
    ),
    (
        (PARAMETER | SHARD | {"compress": {"quantise": "int8", "error_feedback": True}},),
        {"sharding": "zero3"},
        "0.compress.error_feedback",
        "do not add up",
    ),
    ((MOMENT | SHARD,), {"sharding": "zero1"}, "0.state", "moments of its own"),
    ((GRADIENT | {"compress": {"low_rank": 2}},), {"sharding": "zero1"}, "0.compress.low_rank", "flat parts"),
    ((MOMENT,), {}, "0.state", "have the same moments"),
    ((GRADIENT, PARAMETER, MOMENT), {}, "1.state", "have the same parameters"),
    ((GRADIENT, PARAMETER, MOMENT), {}, "2.state", "have the same moments"),
    ((PARAMETER, MOMENT), {"workload": {"optimizer": "sgd"}}, "1.state", "sgd keeps no first_moment"),
    (
        (PARAMETER, MOMENT | {"state": "optimizer"}),
        {"workload": {"optimizer": "lion"}},
        "1.state",
        "lion keeps no second_moment",
    ),
    (
        (PARAMETER,),
        EXPERTS | {"layout": {"dp_replicate": 32, "tp": 2, "ep": 4}},
        "0.over",
        "edp_replicate = 16 ≠ dp_replicate = 32",
    ),
    (
        (PARAMETER | SHARD,),
        EXPERTS | {"layout": {"dp_replicate": 4, "dp_shard": 8, "tp": 2, "ep": 8}},
        "0.over",
        "edp_shard = 2 ≠ dp_shard = 8",
    ),
    (
        (PARAMETER,),
        EXPERTS
        | {
            "layout": {
                "dp_replicate": 4,
                "dp_shard": 16,
                "ep": 8,
                "rank_order": ("dp_replicate", "tp", "cp", "dp_shard", "pp"),
            }
        },
        "0.over",
        "every 1th against every 16th",
    ),
    ((PARAMETER | {"fragments": 17},), {}, "0.fragments", "fragments ≤ layers: 17 > 16"),
    ((PARAMETER | {"fragments": {"count": 17}},), {}, "0.fragments", "17 > 16"),
    ((GRADIENT | {"compress": {"top_k": 0.1, "layers": "3..16"}},), {}, "0.compress.layers", "are 0..15"),
    (
        (GRADIENT | {"compress": {"top_k": 0.1, "layers": "9..3"}},),
        {},
        "0.compress.layers",
        "before the last",
    ),
    ((GRADIENT | {"compress": {"top_k": 0.1, "layers": "all"}},), {}, "0.compress.layers", "range of layers"),
    ((GRADIENT | {"compress": {"low_rank": 100_000}},), {}, "0.compress.low_rank", "is sent whole"),
    ((GRADIENT | {"compress": {"low_rank": {"budget": 10**6}}},), {}, "0.compress.low_rank", "is sent whole"),
    ((PARAMETER | {"fragments": 10**12},), {}, "0.fragments", "must be a whole number"),
    ((PARAMETER | {"delay": 2},), {}, "0.delay", "delay ≤ every"),
]


@pytest.mark.parametrize(("entries", "keys", "field", "rule"), BAD)
def test_bad_plans_are_named(entries, keys, field, rule):
    found = [one for one in problems(*entries, **keys) if one.field == f"synchronise.{field}"]
    assert [rule in one.rule for one in found] == [True]
    assert all(one.suggestion for one in found)


def test_every_rule_has_a_case():
    bad = [case(*entries, **keys) for entries, keys, _, _ in BAD]
    own = [rule for rule in AXIS_RULES if rule not in COMBINATION_RULES]
    assert all(any(list(rule(one)) for one in bad) for rule in own)


@pytest.mark.parametrize("layers", ["9..3", "3..16", "all"])
def test_suggested_layers_are_those_of_the_model(layers):
    (problem,) = problems(GRADIENT | {"compress": {"top_k": 0.1, "layers": layers}})
    assert problem.suggestion == f"layers: 0..{DENSE.layers - 1}"


def test_ranks_are_useless_from_where_no_factors_are_smaller():
    whole = {"layout": {"dp_replicate": 64}}
    (problem,) = problems(GRADIENT | {"compress": {"low_rank": 10**6}}, **whole)
    assert problem.severity == "warning"
    useful = int(problem.rule.rpartition(" ")[2])
    assert problems(GRADIENT | {"compress": {"low_rank": useful}}, **whole) == []
    assert problems(GRADIENT | {"compress": {"low_rank": useful + 1}}, **whole) != []
    shapes = {p.shape for block in graph(DENSE).blocks for op in block.operators for p in op.parameters}
    matrices = [(1, *shape) for shape in shapes if len(shape) == 2]
    smaller = [[rank for rank in (useful, useful + 1) if factor_rank(rank, one)] for one in matrices]
    assert max(smaller) == [useful]


def test_sgd_with_momentum_has_a_first_moment():
    sgd = {"optimizer": {"name": "sgd", "momentum": 0.9}}
    assert problems(PARAMETER, MOMENT, workload=sgd) == []


def test_unknown_names_stop_no_other_rule():
    strange = {"state": "weights", "over": "dp"}
    fields = [problem.field for problem in problems(strange, PARAMETER | {"fragments": 99})]
    assert fields == ["synchronise.0.state", "synchronise.0.over", "synchronise.1.fragments"]


def test_checks_of_a_plan_name_all_problems_at_once():
    entries = (PARAMETER | {"delay": 2, "with": "pairs"}, MOMENT | SHARD)
    found = check_plan(plan(*entries), graph(DENSE), cluster(64), load_stack("generic"))
    assert [problem.field for problem in found] == [
        "synchronise.0.with", "synchronise.0.delay", "synchronise.1.state"
    ]  # fmt: skip
    legal = check_plan(plan(PARAMETER), graph(DENSE), cluster(64), load_stack("generic"))
    assert legal == []


def test_a_layout_without_ranks_of_cp_shards_dp_shard_alone():
    one = case(PARAMETER | SHARD, sharding="zero1", layout={"dp_replicate": 64})
    (problem,) = [problem for rule in AXIS_RULES for problem in rule(one)]
    assert problem.field == "synchronise.0.over"
