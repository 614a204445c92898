"""Little's law, limits and monotony of the steady state of one pool."""

import numpy as np
import pytest
from replicas import phases, replica

from meshwright.cost.serving.steady_state import Waiting, steady_state

WAITING = Waiting(prompt_s=0.03, burst_share=0.2)
LAYOUTS = [{"tp": 8}, {"tp": 2, "pp": 4}]


@pytest.mark.parametrize("degrees", LAYOUTS)
@pytest.mark.parametrize("mixed", [True, False])
def test_littles_law_holds_in_a_closed_loop(degrees, mixed):
    clients = np.array([1.0, 3.0, 32.0, 200.0, 3000.0])
    room = np.array([np.inf, np.inf, np.inf, 100.0, np.inf])
    found = steady_state(phases(replica(**degrees), concurrency=clients, room=room, mixed=mixed), WAITING)
    latency = found.ttft_s + 1023 * found.tpot_s
    assert found.requests_per_s * latency == pytest.approx(clients, rel=1e-6)
    assert found.requests_per_s * 1023 * found.tpot_s == pytest.approx(found.batch, rel=1e-6)
    assert found.batch[3] == pytest.approx(100)
    assert found.limited_by.tolist() == ["", "", "", "kv_room", ""]


def test_more_clients_never_lower_throughput_or_tpot():
    clients = np.geomspace(1, 4000, 40)
    found = steady_state(phases(replica(tp=8), concurrency=clients, max_sequences=1000.0), WAITING)
    for value in (found.requests_per_s, found.tpot_s, found.batch):
        assert (np.diff(value) >= -1e-9 * value[1:]).all()
    assert (found.batch <= clients).all()
    assert (found.limited_by == np.where(found.batch >= 999.999, "max_sequences", "")).all()
    assert found.limited_by[-1] == "max_sequences"


def test_open_arrivals_are_served_up_to_the_capacity():
    most = steady_state(phases(replica(tp=8), rate_per_s=np.inf, room=500.0), WAITING)
    capacity = float(most.requests_per_s)
    assert most.batch == pytest.approx(500)
    assert most.limited_by == "kv_room"
    rates = capacity * np.array([0.01, 0.5, 0.95, 1.05])
    found = steady_state(phases(replica(tp=8), rate_per_s=rates, room=500.0), WAITING)
    assert found.requests_per_s == pytest.approx(np.minimum(rates, capacity), rel=1e-6)
    assert found.limited_by.tolist()[0] == ""
    assert found.limited_by.tolist()[-1] == "capacity"
    assert np.isnan(found.ttft_s).tolist() == [False, False, False, True]
    assert (np.diff(found.ttft_s[:3]) > 0).all()
    assert (np.diff(found.tpot_s[:3]) > 0).all()


def test_one_output_token_is_prefill_alone():
    closed = steady_state(
        phases(replica(tp=8), output_tokens=1.0, concurrency=np.array([1.0, 64.0])), WAITING
    )
    assert np.isnan(closed.tpot_s).all()
    assert (closed.batch == 0).all()
    assert closed.requests_per_s * closed.ttft_s == pytest.approx([1.0, 64.0])
    open_ = steady_state(phases(replica(tp=8), output_tokens=1.0, rate_per_s=np.array([1.0, 1e4])), WAITING)
    assert open_.requests_per_s[0] == 1.0
    assert open_.requests_per_s[1] == pytest.approx(
        1 / float(phases(replica(tp=8), output_tokens=1.0).full_s)
    )
    assert np.isnan(open_.ttft_s[1])


def test_a_prefix_in_the_cache_and_shorter_outputs_shorten_latency():
    whole = steady_state(phases(replica(tp=8), input_tokens=8000.0, concurrency=16.0), WAITING)
    cached = steady_state(
        phases(replica(tp=8), input_tokens=8000.0, prefix_tokens=7000.0, concurrency=16.0), WAITING
    )
    assert cached.ttft_s < whole.ttft_s
    assert cached.tpot_s < whole.tpot_s


def test_tpot_holds_the_share_of_prefill():
    at = phases(replica(tp=8), concurrency=64.0).at(np.array(64.0))
    assert at.tpot_s == pytest.approx(at.decode_s + 64 / 1023 * at.occupied_s)
    assert at.prefill_share == pytest.approx(64 / 1023 * at.occupied_s / at.tpot_s)


def test_prompts_on_several_ranks_of_attention_cost_each_less_the_more_there_are():
    cost = replica("deepseek-v3", attention_dp=8, ep=8)
    at = phases(cost, input_tokens=8192.0).at(np.array([1.0, 64.0, 1024.0]))
    assert (np.diff(at.occupied_s) < 0).all()
    assert (np.diff(at.tpot_s) > 0).all()


def test_prompts_held_back_for_other_ranks_take_less_time_of_others_and_wait_longer():
    cost = replica("deepseek-v3", attention_dp=8, ep=8)
    load = {"input_tokens": 8192.0, "concurrency": 64.0}
    at_once = steady_state(phases(cost, **load), WAITING)
    aligned = steady_state(phases(cost, align_iterations=60.0, **load), WAITING)
    assert aligned.tpot_s < 0.8 * at_once.tpot_s
    gathered = phases(cost, align_iterations=60.0, **load).at(aligned.batch)
    assert gathered.gathering_iterations == pytest.approx(
        min(7, 60 * aligned.batch / 1023) / (2 * aligned.batch / 1023)
    )


def test_a_pipeline_waits_for_its_slowest_micro_batch():
    at = phases(replica(pp=4), input_tokens=8192.0).at(np.array([1.0, 4092.0]))
    alone, always = phases(replica(pp=4), input_tokens=8192.0).with_chunk_s(np.array([1.0, 4092.0]), 1.0)
    assert at.occupied_s[0] == pytest.approx(alone - at.decode_s[0], rel=0.01)
    assert at.occupied_s[1] == pytest.approx((always - at.decode_s[1]) / 4, rel=1e-6)


def test_requests_that_all_come_at_once_fill_all_stages_together():
    times = phases(replica(pp=4), input_tokens=8192.0, rate_per_s=np.inf)
    at = times.at(np.array(8.0))
    assert at.occupied_s == pytest.approx((times.with_chunk_s(8.0, 1.0) - at.decode_s) / 4, rel=1e-9)
    assert at.gathering_iterations == 0
