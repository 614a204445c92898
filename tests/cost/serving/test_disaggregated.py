"""Little's law and limits of a pool that prefills and one that decodes."""

import numpy as np
import pytest
from replicas import phases, replica

from meshwright.cost.serving.disaggregated import PoolPair, disaggregated_state
from meshwright.cost.serving.kv_transfers import hand_over_seconds
from meshwright.cost.serving.steady_state import Waiting
from meshwright.program.serving.serving_degrees import ReplicaDegrees
from meshwright.program.serving.storage_formats import StorageFormats

WAITING = Waiting(prompt_s=0.03, burst_share=0.2)


def _pools(prefill_replicas=2.0, decode_replicas=1.0, hand_over_s=0.01, **load):
    cost = replica(tp=4)
    return PoolPair(
        prefill=phases(cost, **load),
        prefill_replicas=prefill_replicas,
        decode=phases(cost, **load),
        decode_replicas=decode_replicas,
        hand_over_s=hand_over_s,
        waiting=WAITING,
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
    seconds = hand_over_seconds(cost.model, cost.times, 1000.0, formats, sender, receiver)
    cache = 1000 * 80 * 2 * 8 * 128 * 2
    forms = cost.times.forms
    assert seconds == pytest.approx([float(forms.p2p(cache / n, True)) for n in (2, 4)])
