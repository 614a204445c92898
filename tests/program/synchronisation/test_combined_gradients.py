"""What rules, quorums and codes change in a Program: collectives, kept rows, passes and sequences."""

from dataclasses import replace

import pytest
from combine_plans import RULES, THREE, combine_plan, combined

from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.program.lowering.step_collectives import PRODUCT_BYTES, PRODUCTS
from meshwright.program.program import sequences_of_step
from meshwright.program.synchronisation.kept_bytes import kept_bytes_of
from meshwright.program.synchronisation.replica_arrivals import (
    arrival_weights,
    late_replicas,
    replica_labels,
)

PLAIN = THREE["replicas"].lowered()[0]


def program(rule, cut="replicas"):
    return combine_plan(rule, cut).lowered()[0]


def reductions(of):
    return [c for (_, kind), items in of.collectives.items() if kind == "REDUCE" for c in items]


@pytest.mark.parametrize("rule", ["median", "krum"])
def test_rows_of_all_replicas_are_gathered_and_kept(rule):
    (plain,), (rows,) = reductions(PLAIN), reductions(program(rule))
    assert (plain.kind, rows.kind) == ("all-reduce", "all-gather")
    assert rows.logical_bytes == 3 * plain.logical_bytes
    assert kept_bytes_of(program(rule), 0).on_device["row"] == rows.logical_bytes


def test_rules_of_whole_gradients_sum_products_before_the_norm():
    of_krum, of_median = (program(rule).collectives[None, "NORM"] for rule in ("krum", "median"))
    assert [item.what for item in of_krum] == [PRODUCTS, "gradient norm"]
    assert of_krum[0].logical_bytes == PRODUCT_BYTES * 9
    assert [item.what for item in of_median] == ["gradient norm"]


@pytest.mark.parametrize("rule", ["quorum", "cyclic code"])
def test_gradients_without_late_replicas_are_reduced_behind_all_passes(rule):
    for cut in ("replicas", "pp"):
        late = program(rule, cut)
        assert "REDUCE" not in late.overlapped
        for actions in late.lists:
            kinds = [action.kind for action in actions]
            assert kinds.index("REDUCE") > max(n for n, kind in enumerate(kinds) if kind in ("B", "W"))
    assert "REDUCE" in PLAIN.overlapped


@pytest.mark.parametrize(("rule", "times"), [("cyclic code", 2), ("repetition code", 3)])
def test_replicas_of_codes_make_several_times_the_passes_for_the_same_sequences(rule, times):
    coded = program(rule)
    assert coded.micro_batches == times * PLAIN.micro_batches
    assert sequences_of_step(coded) == sequences_of_step(PLAIN)
    assert len(coded.lists[0]) - len(PLAIN.lists[0]) == 2 * (times - 1) * PLAIN.micro_batches


def test_weights_make_the_labels_of_those_that_arrived_the_whole_batch():
    late = late_replicas(program("quorum"))
    assert (late.replicas, late.needed, late.least) == (3, 2, 1)
    weights = arrival_weights(late, [10, 30, 60], (0, 2))
    assert weights == [100 / 70, 0.0, 100 / 70]
    assert arrival_weights(late, [0, 5, 0], (0, 2)) == [1.0, 0.0, 1.0]
    assert late_replicas(program("median")) is None


def test_labels_of_a_replica_are_those_of_all_its_ranks():
    table = [[1, 2], [3, 4], [5, 6]]
    assert replica_labels(PLAIN, "dp_replicate", table, (0, 0)) == [3, 7, 11]
    assert replica_labels(PLAIN, "dp_shard", table, (0, 0)) == [9, 12]
    apart = replace(PLAIN, loose=("dp_shard",))
    assert replica_labels(apart, "dp_replicate", table, (0, 1)) == [2, 4, 6]


@pytest.mark.parametrize(
    ("combine", "least"),
    [({"trimmed_mean": 1}, 3), ({"krum": 0}, 3), ({"flag": {"rank": 2}}, 2), ("median", 1)],
)
def test_a_dynamic_quorum_leaves_a_rule_enough_rows(combine, least):
    entry = Synchronisation.model_validate(combined(combine=combine, **{"with": {"quorum": "dynamic"}}))
    late = late_replicas(replace(THREE["replicas"], synchronise=(entry,)).lowered()[0])
    assert (late.needed, late.least) == (None, least)


def test_every_rule_lowers_on_every_cut():
    assert all(program(rule, cut).lists for rule in RULES for cut in THREE)
