"""Rules and quorums of gradients are held against the number of replicas, and bad ones are named with their rule."""

import pytest
from plan_cases import DENSE, SPARSE, cluster, graph, short_plan

from meshwright.plans.forms.conversion import expand
from meshwright.plans.rules.rule_input import RuleInput
from meshwright.plans.rules.synchronisation.axis_rules import AXIS_RULES
from meshwright.plans.rules.synchronisation.combination_rules import COMBINATION_RULES
from meshwright.stack.load import load_stack

GRADIENT = {"state": "gradient", "over": "dp_replicate"}
SEVEN = {"dp_replicate": 7}


def case(entry, layout=SEVEN, arch=DENSE, **keys):
    keys = {"sharding": "none", "stack": "generic"} | keys
    plan = expand(short_plan(layout, synchronise=(GRADIENT | entry,), **keys), arch)
    return RuleInput(plan, graph(arch), cluster(64), load_stack("generic"))


def problems(entry, rules=AXIS_RULES, **keys):
    this = case(entry, **keys)
    return [problem for rule in rules for problem in rule(this)]


GOOD = [
    {"combine": "mean"},
    {"combine": "median"},
    {"combine": {"trimmed_mean": 3}},
    {"combine": {"krum": 2}},
    {"combine": {"flag": {"rank": 7}}},
    {"combine": {"coded": {"tolerate": 6}}},
    {"combine": {"coded": {"scheme": "m-sgc", "burst": 1, "window": 2, "stragglers": 3}}},
    {"with": {"quorum": 7}},
    {"with": {"quorum": "dynamic"}},
    {"with": "all"},
    {"combine": {"krum": 1}, "with": {"quorum": 5}},
    {"combine": {"krum": 1}, "compress": {"quantise": "int8"}},
    {"with": {"quorum": 5}, "compress": {"low_rank": 2}},
]


@pytest.mark.parametrize("entry", GOOD, ids=str)
def test_good_entries_have_no_problem(entry):
    assert problems(entry) == []


def combine(**rule):
    return {"combine": rule}


def coded(**keys):
    return {"combine": {"coded": keys}}


BAD = [
    (coded(tolerate=7), "combine.coded.tolerate", "tolerate < dp_replicate: 7 ≥ 7"),
    (coded(tolerate=-1), "combine.coded.tolerate", "must be a whole number"),
    (coded(), "combine.coded.tolerate", "scheme gc needs tolerate"),
    (coded(tolerate=1, burst=1), "combine.coded.burst", "scheme gc has no burst"),
    (coded(scheme="m-sgc", burst=1, window=2), "combine.coded.stragglers", "scheme m-sgc needs stragglers"),
    (
        coded(scheme="sr-sgc", burst=1, window=2, stragglers=7),
        "combine.coded.stragglers",
        "stragglers < dp_replicate: 7 ≥ 7",
    ),
    (coded(scheme="gcs", tolerate=1), "combine.coded.scheme", "unknown name"),
    ({"with": {"quorum": 0}}, "with.quorum", "must be a whole number from 1"),
    ({"with": {"quorum": 8}}, "with.quorum", "quorum ≤ dp_replicate: 8 > 7"),
    ({"with": {"quorum": "most"}}, "with.quorum", "unknown name"),
    ({"with": {"quorum": 3, "graph": "ring"}}, "with", "must be one of quorum, graph, server, tree"),
    (combine(trimmed_mean=4), "combine.trimmed_mean", "2·f < gradients that are combined: 2·4 ≥ 7"),
    (combine(trimmed_mean=1.5), "combine.trimmed_mean", "must be a whole number"),
    (combine(krum=3), "combine.krum", "gradients that are combined ≥ 2·f + 3: 7 < 9"),
    (combine(flag={"rank": 8}), "combine.flag.rank", "rank ≤ gradients that are combined: 8 > 7"),
    (combine(krum=2) | {"with": {"quorum": 6}}, "combine.krum", "≥ 2·f + 3: 6 < 7"),
    (combine(krum=1, trimmed_mean=1), "combine", "must be one of trimmed_mean, krum, flag, coded"),
    (combine(krum=1) | {"compress": {"low_rank": 2}}, "compress", "krum needs the gradient of each replica"),
    (
        {"combine": "median", "compress": {"sketch": {"width": 1}}},
        "compress",
        "median needs the gradient of each replica",
    ),
    (coded(tolerate=1) | {"with": {"quorum": 6}}, "with.quorum", "a code says by itself how many"),
    (coded(tolerate=1) | {"compress": {"quantise": "int8"}}, "compress", "a code's sums are exact"),
    ({"combine": "median", "every": 2}, "every", "only compress, combine and with may be said"),
    ({"with": {"quorum": 6}, "every": 4}, "every", "only compress, combine and with may be said"),
    ({"combine": "middle"}, "combine", "unknown name"),
]


@pytest.mark.parametrize(("entry", "key", "rule"), BAD, ids=[str(entry) for entry, _, _ in BAD])
def test_bad_entries_are_named_with_their_rule(entry, key, rule):
    (problem,) = (one for one in problems(entry) if one.severity == "error")
    assert problem.field == f"synchronise.0.{key}"
    assert rule in problem.rule
    assert problem.suggestion


def test_rules_over_sharded_gradients_are_refused():
    layout = {"dp_replicate": 2, "dp_shard": 8}
    for entry, key in (({"combine": "median"}, "combine"), ({"with": {"quorum": 6}}, "with")):
        (problem,) = problems(
            {"over": "dp_shard"} | entry, COMBINATION_RULES, layout=layout, sharding="zero1"
        )
        assert problem.field == f"synchronise.0.{key}"
        assert "zero1 shards states over dp_shard" in problem.rule
        assert problems({"over": "dp_shard"} | entry, layout=layout) == []


def test_cyclic_codes_have_their_worst_condition_number_as_a_warning():
    (problem,) = problems(coded(tolerate=2))
    assert problem.severity == "warning"
    assert "condition number 9.49 at worst" in problem.rule
    assert problems(coded(tolerate=1), layout={"dp_replicate": 8}) == []
    (problem,) = problems(coded(tolerate=1), layout={"dp_replicate": 64 * 7})
    assert problem.field == "synchronise.0.combine.coded"


def test_experts_of_a_combined_replica_are_its_own():
    layout = {"dp_replicate": 4, "dp_shard": 16, "ep": 32}
    (problem,) = problems({"combine": "median"}, layout=layout, arch=SPARSE)
    assert problem.field == "synchronise.0.over"
    assert problems({"combine": "median"}, layout=layout | {"ep": 16}, arch=SPARSE) == []


def test_every_rule_has_a_case():
    sharded = case({"over": "dp_shard", "combine": "median"}, {"dp_shard": 64}, sharding="zero1")
    bad = [sharded, case(coded(tolerate=1)), *(case(entry) for entry, _, _ in BAD)]
    assert all(any(list(rule(one)) for one in bad) for rule in COMBINATION_RULES)
