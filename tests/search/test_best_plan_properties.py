"""Properties of the best answer: more of a cluster never hurts, twice the work takes at most twice as long, and k times
the devices do almost k times the work where the network lets them."""

from dataclasses import replace
from math import inf, isfinite

import pytest
from small_questions import random_question

from meshwright.explanation.cluster_resources import device_memory, rates
from meshwright.plans.forms.short import ShortPlan, WorkloadSpec
from meshwright.units import GIB
from meshwright.verbs.plan.plan_on_cluster import setting_of
from meshwright.verbs.plan.search_space import search, search_scope

EXACT = 1 + 1e-9
QUESTIONS = {
    "experts": ("mixtral-8x7b", "h200-sxm-141gb x 8", 4096, 16, "megatron-core"),
    "dense": ("llama-2-7b", "a100-sxm-40gb x 24", 4096, 96, "megatron-core"),
    "sharded": ("llama-3.1-8b", "h100-sxm-80gb x 16", 8192, 32, "torchtitan"),
}
SMALL = (17, 0, 23)
ALIKE = 0.8
"""What k times the devices do of k times the work, at least."""
GROWING = {
    "llama-2-7b on mi250x": ("llama-2-7b", "mi250x", 8, 2048, 16, "deepspeed"),
    "llama-2-7b from half a node": ("llama-2-7b", "a100-sxm-80gb", 4, 2048, 8, "megatron-core"),
    "llama-3.2-1b from a node": ("llama-3.2-1b", "h100-sxm-80gb", 8, 4096, 8, "megatron-lm-2022"),
    "llama-3.1-70b": ("llama-3.1-70b", "h100-sxm-80gb", 64, 8192, 256, "megatron-core"),
    "gpt-3-175b": ("gpt-3-175b", "a100-sxm-80gb", 128, 2048, 256, "megatron-core"),
    "mixtral-8x7b": ("mixtral-8x7b", "h100-sxm-80gb", 32, 4096, 128, "megatron-core"),
    "gpt-oss-20b from a node": ("gpt-oss-20b", "h100-sxm-80gb", 8, 4096, 8, "megatron-core"),
}


def setting(model, cluster, seq_len, batch, stack):
    workload = WorkloadSpec(seq_len=seq_len, global_batch=batch)
    return setting_of(ShortPlan(plan=1, model=model, cluster=cluster, workload=workload, stack=stack))


def best_s(of):
    """Seconds per step of the quickest plan; infinite where none fits."""
    found = search(search_scope({}, None, 1, of), of)[1]
    return float(found.step_s[found.fits].min(initial=inf))


def twice_the_work(of):
    return replace(of, workload=replace(of.workload, global_batch=2 * of.workload.global_batch))


def check_more_never_hurts(of):
    """Rates of the cluster and memory of its devices, halved and doubled; the change that each of them makes."""
    now, slower = best_s(of), []
    assert isfinite(now)
    for resource in (*rates(of), device_memory(of)):
        less, more = best_s(resource.scaled(0.5)), best_s(resource.scaled(2))
        assert more <= now * EXACT, resource.words
        assert now <= less * EXACT, resource.words
        slower.append(less / more)
    assert max(slower) > EXACT


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_more_memory_and_more_bandwidth_never_make_the_best_plan_slower(name):
    check_more_never_hurts(setting(*QUESTIONS[name]))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", SMALL)
def test_nor_in_small_questions_with_odd_numbers(seed):
    check_more_never_hurts(random_question(seed).setting)


@pytest.mark.slow
def test_every_gib_that_lets_a_quicker_plan_fit_is_taken():
    question = setting("llama-3.1-8b", "h100-sxm-80gb x 8", 8192, 16, "megatron-core")
    own, device = device_memory(question), question.cluster.pool.device
    times = [best_s(own.scaled(gib * GIB / device.memory_bytes)) for gib in (8, 16, 24, 32, 48, 64, 96)]
    assert times == sorted(times, reverse=True)
    assert times[0] == inf
    assert len(set(times)) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("name", QUESTIONS)
def test_a_batch_twice_as_large_takes_at_most_twice_as_long(name):
    question = setting(*QUESTIONS[name])
    assert best_s(twice_the_work(question)) <= 2 * best_s(question) * EXACT


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("name", GROWING)
def test_k_times_the_devices_do_almost_k_times_the_work_on_a_fabric_that_does_not_block(name):
    model, device, devices, seq_len, batch, stack = GROWING[name]
    one = best_s(setting(model, f"{device} x {devices}", seq_len, batch, stack))
    for k in (4, 32):
        many = best_s(setting(model, f"{device} x {k * devices}", seq_len, k * batch, stack))
        assert one / many >= ALIKE, k


def test_a_network_that_is_too_slow_is_where_they_do_less():
    model, device, devices, seq_len, batch, stack = GROWING["llama-3.2-1b from a node"]
    one = best_s(setting(model, f"{device} x {devices}", seq_len, batch, stack))
    many = setting(model, f"{device} x {32 * devices}", seq_len, 32 * batch, stack)
    (network,) = (rate for rate in rates(many) if rate.name == "network_bandwidth")
    assert one / best_s(network.scaled(1 / 16)) < ALIKE
