"""Signs and sizes of sensitivities, on plans drawn from a space."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from explained_cases import best, explained_plain, resolved
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright import api
from meshwright.explanation.cluster_resources import rates
from meshwright.explanation.plan_difference import USUAL, ExplainedPlan, legal_plan
from meshwright.explanation.sensitivity import FACTORS, sensitivities
from meshwright.plans.arrays.short_plans import short_plan
from meshwright.search.space.legal_plans import enumerate_space

NOISE = 1e-9


def _subject(seed):
    setting = best().setting
    space = enumerate_space(setting)
    row = int(np.random.default_rng(seed).integers(len(space.plans)))
    return ExplainedPlan.of(legal_plan(short_plan(space.plans, row, best().short), USUAL, setting))


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_more_of_a_rate_never_makes_a_step_longer_and_k_times_never_k_times_shorter(seed):
    subject = _subject(seed)
    for one in sensitivities(subject, list(rates(subject.setting))):
        known = {1.0: one.own_s} | {f: s for f, s in one.step_s.items() if s is not None}
        ordered = [known[factor] for factor in sorted(known)]
        assert all(a >= b * (1 - NOISE) for a, b in itertools.pairwise(ordered))
        assert all(known[f] * f >= known[g] * g * (1 - NOISE) for f in known for g in known if f >= g), (
            one.resource.name
        )
        assert -1 - NOISE <= one.elasticity <= NOISE


@settings(max_examples=10)
@given(seed=st.integers(0, 10**6))
def test_all_rates_together_bind_at_most_the_whole_step(seed):
    subject = _subject(seed)
    found = [one.elasticity for one in sensitivities(subject, list(rates(subject.setting)))]
    assert -1.02 <= sum(found) <= NOISE


def test_half_of_a_rate_is_a_cluster_with_half_of_it_and_nothing_else():
    wide = {"pp": 2, "dp_shard": 4, "tp": 2}
    setting = resolved(cluster="h100-sxm-80gb x 16", layout=wide).setting
    (cards,) = [one for one in rates(setting) if one.name == "network_bandwidth"]
    less = cards.scaled(0.5)
    assert less.cluster.pool.node.nic_bytes_per_s == 200e9
    pool = setting.cluster.pool
    slower = replace(setting.cluster, pools=(replace(pool, node=less.cluster.pool.node),))
    assert less == replace(setting, cluster=slower)


def test_a_cluster_of_one_domain_has_no_network_and_one_device_no_links():
    assert [one.name for one in rates(resolved().setting)] == [
        "peak_flops",
        "memory_bandwidth",
        "scaleup_bandwidth",
    ]
    alone = resolved(cluster="h100-sxm-80gb x 1", layout={}, sharding="none")
    assert [one.name for one in rates(alone.setting)] == ["peak_flops", "memory_bandwidth"]


def test_links_faster_than_the_measured_ones_are_not_known():
    (links,) = [one for one in explained_plain().sensitivities if one.resource.name == "scaleup_bandwidth"]
    assert links.resource.most == 1.0
    assert [links.step_s[factor] is None for factor in FACTORS] == [False, False, True, True]
    assert "twice is not known" in links.text
    assert links.elasticity < 0


def test_slower_links_than_the_measured_ones_can_become_as_fast():
    slow = resolved(cluster="h800-sxm-80gb x 8")
    (links,) = [one for one in rates(slow.setting) if one.name == "scaleup_bandwidth"]
    assert links.most == pytest.approx(2.25)


def test_uplinks_of_an_oversubscribed_tier_are_a_rate(tmp_path):
    text = (
        "name: c\npools: [{name: all, device: h100-sxm-80gb, count: 64}]\n"
        "tiers: [{name: pod, devices: 16, oversubscription: 4.0}]\n"
    )
    (tmp_path / "cluster.yaml").write_text(text, encoding="utf-8")
    plan = tmp_path / "plan.yaml"
    plan.write_text(
        "plan: 1\nmodel: llama-3.1-8b\ncluster: cluster.yaml\nworkload: {seq_len: 4096, global_batch: 64}\n"
        "layout: {pp: 4, dp_shard: 8, tp: 2}\nsharding: zero1\n",
        encoding="utf-8",
    )
    subject = ExplainedPlan.of(api.load(plan))
    (uplinks,) = [one for one in rates(subject.setting) if one.name == "uplinks_pod"]
    assert uplinks.most == 4.0
    assert uplinks.scaled(2.0).cluster.tiers[0].oversubscription == 2.0
    (found,) = sensitivities(subject, [uplinks])
    assert found.step_s[0.5] > found.own_s > found.step_s[2.0]
