"""Policies of recovery: closed forms against play, order, spare nodes, and which are possible."""

import itertools
from dataclasses import replace
from random import Random
from statistics import mean, stdev

import pytest
from economy_settings import ASSUMED, setting
from simulated_recovery import Case, PlayedJob

from meshwright.economy.assumptions import Assumptions
from meshwright.economy.checkpoint_interval import best_interval
from meshwright.economy.goodput import FailureModel, failure_model
from meshwright.economy.node_states import node_states
from meshwright.economy.recovery_policies import POLICIES, recovery_policies, whole_copies
from meshwright.economy.spare_nodes import stopped_share
from meshwright.model.load import load_model
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.forms.conversion import expand
from meshwright.runtime.training import options

HOURS = 3600.0
JOBS = {
    "often, no spare": (16, 0, 4 * HOURS, 2 * HOURS),
    "often, a spare": (16, 1, 4 * HOURS, 2 * HOURS),
    "seldom, no spare": (64, 0, 40 * HOURS, 4 * HOURS),
    "long repairs, two spares": (32, 2, 8 * HOURS, 12 * HOURS),
}
PLAYS, FAILURES, TOLERANCE = 8, 1500, 0.01


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("policy", POLICIES)
def test_the_share_of_a_policy_is_that_of_played_jobs(policy, job):
    nodes, spares, mtbf_s, repair_s = JOBS[job]
    found, assumed = _failures(nodes, spares, mtbf_s, repair_s)
    on = setting(f"h100-sxm-80gb x {8 * nodes}")
    one = next(o for o in recovery_policies(found, on, assumed, 20.0, 4) if o.policy == policy)
    case = Case(
        policy,
        nodes,
        spares,
        {"replan": 1, "shrink": nodes // 4}.get(policy, nodes),
        mtbf_s,
        repair_s,
        one.interval_s,
        found.write_s,
        found.restart_s,
        step_s=20.0,
        by_hand_s=2 * HOURS if policy == "stop" else 0.0,
        shrink_s=60.0,
        shared=0.23 if policy == "shrink" else 1.0,
    )
    shares = [PlayedJob(case, Random(f"{policy} {job} {play}")).share(FAILURES) for play in range(PLAYS)]
    assert stdev(shares) / PLAYS**0.5 < TOLERANCE / 2
    assert abs(mean(shares) - one.useful_share) < TOLERANCE


def _failures(nodes, spares, mtbf_s, repair_s):
    assumed = Assumptions(spare_nodes=spares)
    stopped = stopped_share(mtbf_s, repair_s, spares)
    write_s = 60.0
    best = best_interval(write_s, mtbf_s)
    found = FailureModel(nodes, mtbf_s, 1e9, write_s, 700.0, best, stopped, "", repair_s, spares)
    return found, assumed


@pytest.mark.parametrize("saved_in_background", [False, True])
def test_restart_is_the_goodput(saved_in_background):
    assumed = replace(ASSUMED, checkpoint_async=saved_in_background)
    on = setting("h100-sxm-80gb x 4096", assumed)
    found = failure_model(on, assumed)
    (restart,) = [one for one in recovery_policies(found, on, assumed, 10.0, 1) if one.policy == "restart"]
    assert restart.useful_share == pytest.approx(found.share(10.0), rel=1e-6)
    assert restart.interval_s == pytest.approx(found.work_s(10.0), rel=1e-6)
    assert restart.spare_nodes == found.spare_nodes


def test_a_unit_of_all_nodes_is_erlangs_loss_system():
    for spares in (0, 1, 5):
        states = node_states(8, 8, spares, 5 * HOURS, 4 * HOURS)
        assert states[-1].working == 0
        assert states[-1].share == pytest.approx(stopped_share(5 * HOURS, 4 * HOURS, spares))
        assert sum(state.share for state in states) == pytest.approx(1.0)


def test_units_work_as_often_as_they_are_whole():
    states = node_states(12, 4, 1, 5 * HOURS, 4 * HOURS)
    assert [state.working for state in states][:7] == [12, 12, 8, 8, 8, 8, 4]


def test_no_interval_nearby_is_better():
    found, assumed = _failures(64, 1, 3 * HOURS, 4 * HOURS)
    on = setting("h100-sxm-80gb x 512")
    for best in recovery_policies(found, on, assumed, 1.0, 8):
        for factor in (0.5, 0.8, 1.25, 2.0):
            given = replace(assumed, checkpoint_every_s=factor * best.interval_s)
            other = replace(found, interval_s=given.checkpoint_every_s)
            (same,) = [o for o in recovery_policies(other, on, given, 1.0, 8) if o.policy == best.policy]
            assert same.interval_s == given.checkpoint_every_s
            assert same.useful_share < best.useful_share + 1e-4


@pytest.mark.parametrize("on", ["h100-sxm-80gb x 4096", "mi300x x 4096"])
def test_no_number_of_spare_nodes_is_worth_more(on):
    """With a price the least dollars; without one the first after which one more saves less than a thousandth."""
    assumed = Assumptions(failures_per_1000_node_days=20.0)
    at = setting(on, assumed)
    priced = at.cluster.pool.usd_per_device_hour is not None
    for best in recovery_policies(failure_model(at, assumed), at, assumed, 10.0, 8):
        shares = []
        for spares in range(best.spare_nodes + 12):
            given = replace(assumed, spare_nodes=spares)
            of = recovery_policies(failure_model(at, given), at, given, 10.0, 8)
            shares += [one.useful_share for one in of if one.policy == best.policy]
        if priced:
            dollars = [(4096 + 8 * spares) / share for spares, share in enumerate(shares)]
            assert dollars.index(min(dollars)) == best.spare_nodes
        else:
            saved = [1 - less / more for less, more in itertools.pairwise(shares)]
            assert [one < 0.001 for one in saved].index(True) == best.spare_nodes


def test_the_first_policy_has_the_least_dollars():
    on = setting("h100-sxm-80gb x 16384", ASSUMED)
    found = recovery_policies(failure_model(on, ASSUMED), on, ASSUMED, 10.0, 16)
    dollars = [(16384 + 8 * one.spare_nodes) / one.useful_share for one in found]
    assert dollars == sorted(dollars)
    assert found[0].policy == "shrink"
    assert found[-1].policy == "stop"


def test_replicas_that_need_one_node_do_not_go_on_without_it():
    for on, copies, possible in (
        ("h100-sxm-80gb x 8", 8, False),
        ("h100-sxm-80gb x 16", 1, False),
        ("h100-sxm-80gb x 16", 16, True),
        ("h100-sxm-80gb x 64", 2, True),
    ):
        at = setting(on)
        found = recovery_policies(failure_model(at, ASSUMED), at, ASSUMED, 1.0, copies)
        assert ("shrink" in [one.policy for one in found]) == possible


def test_where_nothing_fails_all_policies_are_alike_and_the_interval_has_no_end():
    none = Assumptions(failures_per_1000_node_days=0.0)
    on = setting("h100-sxm-80gb x 64", none)
    found = recovery_policies(failure_model(on, none), on, none, 1.0, 8)
    assert {(one.spare_nodes, one.useful_share) for one in found} == {(0, 1.0)}
    assert found[0].to_json()["interval_s"] is None
    assert found[0].policy == "restart"


PLAN = """
plan: 1
model: llama-3.1-8b
cluster: h100-sxm-80gb x 16
workload: {seq_len: 4096, global_batch: 64}
stack: meshwright
layout: {LAYOUT}
sharding: SHARDING
"""


@pytest.mark.parametrize(
    ("layout", "sharding", "copies"),
    [
        ("dp_replicate: 4, dp_shard: 4", "zero1", 4),
        ("dp_replicate: 4, dp_shard: 4", "none", 16),
        ("dp_shard: 16", "zero3", 1),
    ],
)
def test_replicas_with_all_states_are_counted(layout, sharding, copies):
    short = parse_plan(PLAN.replace("LAYOUT", layout).replace("SHARDING", sharding))
    assert whole_copies(expand(short, load_model("llama-3.1-8b").architecture)) == copies


def test_policies_are_those_that_a_run_takes():
    assert POLICIES == options.POLICIES
