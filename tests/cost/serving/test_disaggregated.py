"""Little's law and limits of a pool that prefills and one that decodes."""

from dataclasses import replace

import numpy as np
import pytest
from replicas import phases, replica

from meshwright.cost.serving.disaggregated import PoolPair, disaggregated_state
from meshwright.cost.serving.kv_transfers import cache_transfer
from meshwright.cost.serving.steady_state import Waiting
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats

WAITING = Waiting(prompt_s=0.03, burst_share=0.2)


def _pools(prefill_replicas=2.0, decode_replicas=1.0, hand_over_s=0.01, transfers_per_s=np.inf, **load):
    cost = replica(tp=4)
    return PoolPair(
        prefill=phases(cost, **load),
        prefill_replicas=prefill_replicas,
        decode=phases(cost, **load),
        decode_replicas=decode_replicas,
        hand_over_s=hand_over_s,
        waiting=WAITING,
        transfers_per_s=transfers_per_s,
    )


def test_littles_law_holds_over_both_pools():
    clients = np.array([1.0, 16.0, 300.0, 5000.0])
    found = disaggregated_state(_pools(concurrency=clients, room=1000.0))
    assert found.requests_per_s * (found.ttft_s + 1023 * found.tpot_s) == pytest.approx(clients, rel=1e-5)
    assert found.requests_per_s * 1023 * found.tpot_s == pytest.approx(found.batch, rel=1e-6)
    assert (np.diff(found.requests_per_s) >= 0).all()


def test_prefill_and_decode_each_limit_open_arrivals():
    pools = _pools(rate_per_s=1e6, room=100.0)
    found = disaggregated_state(pools)
    assert found.limited_by == "capacity"
    assert np.isnan(found.ttft_s)
    by_decode = float(pools.requests_per_s(np.array(100.0)))
    assert by_decode < pools.prompts_per_s
    assert found.requests_per_s == pytest.approx(by_decode)
    starved = _pools(prefill_replicas=1.0, rate_per_s=1e6, input_tokens=32768.0, room=1e6)
    assert disaggregated_state(starved).requests_per_s == pytest.approx(float(starved.prompts_per_s))


def test_tokens_do_not_wait_for_prompts_and_the_hand_over_is_part_of_ttft():
    pools = _pools(concurrency=16.0)
    found = disaggregated_state(pools)
    assert found.tpot_s == pytest.approx(float(pools.decode.decode_s(found.batch)))
    later = disaggregated_state(_pools(concurrency=16.0, hand_over_s=0.5))
    assert later.ttft_s > found.ttft_s + 0.4


def test_the_hand_over_moves_the_cache_once_over_the_links_of_the_smaller_replica():
    cost = replica()
    formats = StorageFormats()
    sender, receiver = ReplicaDegrees(tp=8), ReplicaDegrees(tp=np.array([2, 4]))
    seconds = cache_transfer(cost.model, cost.times, 1000.0, formats, sender, receiver).seconds
    cache = 1000 * 80 * 2 * 8 * 128 * 2
    forms = cost.times.forms
    assert seconds == pytest.approx([float(forms.p2p(cache / n, True)) for n in (2, 4)])


def test_links_bound_requests_where_they_carry_fewer_caches_than_prefill_computes():
    clients = np.array([1.0, 300.0, 5000.0])
    free = disaggregated_state(_pools(concurrency=clients, room=1000.0))
    slow = 0.5 * float(free.requests_per_s[-1])
    found = disaggregated_state(_pools(concurrency=clients, room=1000.0, transfers_per_s=slow))
    assert (found.requests_per_s <= slow * (1 + 1e-6)).all()
    assert found.requests_per_s[-1] > 0.95 * slow
    assert list(found.limited_by) == ["", "handover", "handover"]
    assert found.requests_per_s * (found.ttft_s + 1023 * found.tpot_s) == pytest.approx(clients, rel=1e-5)
    arriving = disaggregated_state(_pools(rate_per_s=2 * slow, room=1000.0, transfers_per_s=slow))
    assert arriving.limited_by == "capacity"
    assert arriving.requests_per_s == pytest.approx(slow)


def test_quicker_links_than_prefill_change_nothing():
    clients = np.array([1.0, 16.0, 5000.0])
    pools = _pools(concurrency=clients, room=1000.0)
    found, linked = (
        disaggregated_state(pools),
        disaggregated_state(replace(pools, transfers_per_s=float(pools.prompts_per_s) * 1.001)),
    )
    assert (linked.ttft_s == found.ttft_s).all()
    assert (linked.requests_per_s == found.requests_per_s).all()


def test_links_of_every_rank_of_attention_dp_carry_caches_at_once():
    cost = replica()
    sender, receiver = ReplicaDegrees(tp=8), ReplicaDegrees(tp=2, attention_dp=np.array([1, 4]))
    moved = cache_transfer(cost.model, cost.times, 1000.0, StorageFormats(), sender, receiver)
    alone = float(moved.seconds[0] - cost.times.forms.p2p(0.0, True))
    assert moved.received_per_s == pytest.approx([1 / alone, 4 / alone])
    assert moved.sent_per_s == pytest.approx([4 / alone, 4 / alone])
    assert moved.most_per_s(1.0, np.array([5.0, 1.0])) == pytest.approx([4 / alone, 4 / alone])
