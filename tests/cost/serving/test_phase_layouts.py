"""Laws of replicas that prefill and decode in turns, with layouts of their own."""

import numpy as np
import pytest
from replicas import phases, replica

from meshwright.cost.serving.phase_layouts import HostCopies, PhaseCycle, cycle_state
from meshwright.cost.serving.steady_state import Waiting, steady_state

COPIES = HostCopies(out_s=0.01, in_s=0.02, change_s=1.5, back_s=2.0)
STEPS = 255
LENGTHS = {"input_tokens": 8192.0, "output_tokens": float(STEPS + 1)}


def cycle_of(copies=COPIES, buffer=np.inf, room=100.0, prompt_s=0.03, **load):
    """A replica that prefills in stages and decodes in tensor ranks."""
    fill, write = replica(pp=4, tp=2), replica(tp=8)
    common = {**LENGTHS, "mixed": False, **load}
    return PhaseCycle(
        prefill=phases(fill, **common),
        decode=phases(write, room=room, **common),
        copies=copies,
        buffer_sequences=buffer,
        prompt_s=prompt_s,
    )


def test_littles_law_holds_in_closed_loops():
    clients = np.array([1.0, 7.0, 99.0, 100.0, 130.0, 250.0, 10_000.0])
    for copies in (COPIES, HostCopies()):
        found = cycle_state(cycle_of(copies, concurrency=clients)).steady
        inside = found.requests_per_s * (found.ttft_s + STEPS * found.tpot_s)
        assert inside == pytest.approx(clients, rel=1e-9)
        assert (np.diff(found.requests_per_s) >= -1e-12).all()
        assert (found.batch <= 100 * (1 + 1e-9)).all()


@pytest.mark.parametrize("clients", [1.0, 60.0, 100.0, 300.0])
def test_a_cycle_is_the_sum_of_its_phases(clients):
    """Where clients fill whole waves, counted step by step."""
    cycle = cycle_of(concurrency=clients)
    state = cycle_state(cycle)
    waves = max(1.0, clients / 100)
    at_once = clients / waves
    decode = waves * STEPS * float(cycle.decode.decode_s(at_once))
    prompts = clients * max(float(cycle.prefill.full_s), 0.01)
    fill = float(cycle.prefill.at(0.0).own_s) - max(float(cycle.prefill.full_s), 0.01) + 0.03
    whole = prompts + fill + 1.5 + at_once * 0.02 + max(decode, (clients - at_once) * 0.02) + 2.0
    assert state.turn.cycle_s == pytest.approx(whole)
    assert state.steady.requests_per_s == pytest.approx(clients / whole)


def test_a_client_alone_waits_for_both_changes_and_no_one_else():
    cycle = cycle_of(concurrency=1.0)
    steady = cycle_state(cycle).steady
    assert steady.ttft_s == pytest.approx(float(cycle.prompt_own_s) + 2.0)
    assert steady.tpot_s == pytest.approx((1.5 + 0.02) / STEPS + float(cycle.decode.decode_s(1.0)))


def test_with_many_sequences_a_cycle_the_changes_cost_nothing():
    cycle = cycle_of(concurrency=1e9)
    found = float(cycle_state(cycle).steady.requests_per_s)
    decode = STEPS * float(cycle.decode.decode_s(100.0)) / 100
    assert found == pytest.approx(1 / (float(cycle.prompt_full_s) + decode), rel=1e-6)
    assert found == pytest.approx(float(cycle.most_per_s), rel=1e-6)


def test_equal_layouts_without_copies_are_one_pool_whose_prompts_run_apart():
    """Prompts of one chunk on one rank: the only difference, once batches are full, is the order of iterations."""
    cost = replica(tp=8)
    common = {**LENGTHS, "mixed": False, "rate_per_s": np.inf}
    own = steady_state(phases(cost, room=64.0, **common), Waiting())
    cycle = PhaseCycle(prefill=phases(cost, **common), decode=phases(cost, room=64.0, **common))
    assert float(cycle.most_per_s) == pytest.approx(float(own.requests_per_s), rel=1e-9)


def test_capacity_grows_with_the_rate_of_host_links_up_to_the_bound_of_both_phases():
    slow = np.geomspace(1e-3, 1e3, 25)[::-1]
    copies = HostCopies(*(slow * value for value in COPIES))
    cycle = cycle_of(copies, buffer=400.0)
    assert (np.diff(cycle.most_per_s) > 0).all()
    bound = 1 / (float(cycle.prefill.full_s) + STEPS * float(cycle.decode.decode_s(100.0)) / 100)
    assert (cycle.most_per_s < bound).all()
    free = cycle_of(HostCopies(), prompt_s=0.0)
    assert float(free.most_per_s) == pytest.approx(bound)


def test_capacity_grows_with_the_buffer():
    buffers = np.array([1.0, 20.0, 100.0, 150.0, 199.0, 200.0, 1000.0, 1e6, np.inf])
    most = cycle_of(buffer=buffers).most_per_s
    assert (np.diff(most) >= 0).all()
    assert most[0] < most[-1]


def test_arrivals_are_served_as_they_come_by_the_shortest_cycle():
    most = float(cycle_of(buffer=1000.0).most_per_s)
    rates = most * np.array([1e-5, 0.02, 0.2, 0.5, 0.8, 0.9, 0.97, 0.999])
    cycle = cycle_of(buffer=1000.0, rate_per_s=rates)
    state = cycle_state(cycle)
    assert state.steady.requests_per_s == pytest.approx(rates)
    served = state.turn.requests_per_s
    assert served[state.turn.sequences > 1 + 1e-6] == pytest.approx(
        rates[state.turn.sequences > 1 + 1e-6], rel=1e-6
    )
    assert (served >= rates * (1 - 1e-6)).all()
    assert (np.diff(state.turn.sequences) >= 0).all()
    assert state.turn.sequences[0] == pytest.approx(1)
    assert (np.diff(state.steady.ttft_s) > 0).all()
    assert state.steady.ttft_s[0] == pytest.approx(float(np.ravel(cycle.prompt_own_s)[0]), rel=0.01)


def test_arrivals_without_an_end_of_the_buffer_come_near_the_bound():
    cycle = cycle_of()
    rate = 0.9999 * float(cycle.most_per_s)
    found = cycle_state(cycle_of(rate_per_s=rate))
    assert found.steady.requests_per_s == pytest.approx(rate)
    assert found.turn.requests_per_s == pytest.approx(rate, rel=1e-6)
    assert found.turn.waves > 100


@pytest.mark.parametrize("buffer", [150.0, 400.0, np.inf])
def test_above_capacity_there_is_no_first_token(buffer):
    most = float(cycle_of(buffer=buffer).most_per_s)
    steady = cycle_state(cycle_of(buffer=buffer, rate_per_s=1.01 * most)).steady
    assert steady.limited_by == "capacity"
    assert np.isnan(steady.ttft_s)
    assert steady.requests_per_s == pytest.approx(most)


def test_as_many_requests_as_have_room_take_the_largest_buffer():
    state = cycle_state(cycle_of(buffer=350.0, rate_per_s=np.inf))
    assert state.turn.sequences in (300, 350)
    assert state.steady.limited_by != "capacity"
    assert state.steady.requests_per_s == pytest.approx(float(cycle_of(buffer=350.0).most_per_s))


def test_slow_links_are_named_as_the_limit():
    names = [
        str(cycle_state(cycle_of(HostCopies(*(k * x for x in COPIES)), concurrency=200.0)).steady.limited_by)
        for k in (1e-3, 1e3)
    ]
    assert names == ["kv_room", "handover"]


def test_a_buffer_smaller_than_the_load_lets_clients_wait_for_their_first_token():
    small, large = (cycle_state(cycle_of(buffer=b, concurrency=400.0)).steady for b in (100.0, 400.0))
    assert small.ttft_s > large.ttft_s
    assert small.tpot_s < large.tpot_s
    assert small.requests_per_s < large.requests_per_s


def test_means_are_those_of_every_sequence_of_a_cycle():
    """Three full waves, each request by itself: prefilled in order, decoded by wave, and back in the next cycle."""
    count, places, copies = 300, 100, HostCopies(out_s=0.01, in_s=1e-4, change_s=1.5, back_s=2.0)
    cycle = cycle_of(copies, concurrency=float(count), room=float(places))
    full, own = float(cycle.prompt_full_s), float(cycle.prompt_own_s)
    prefilled = own + full * np.arange(count)
    begins = prefilled[-1] + copies.change_s + places * copies.in_s
    wave = STEPS * float(cycle.decode.decode_s(float(places)))
    done = begins + wave * (np.arange(count) // places + 1)
    whole = done[-1] + copies.back_s
    steady = cycle_state(cycle).steady
    assert STEPS * steady.tpot_s == pytest.approx((done - prefilled).mean())
    assert steady.ttft_s == pytest.approx((whole - done + prefilled).mean())
    assert steady.requests_per_s == pytest.approx(count / whole)


def test_arrivals_wait_for_the_next_cycle_and_for_those_before_them():
    """Evenly spaced arrivals of one cycle, each prefilled in the next one in the order in which they came."""
    cycle = cycle_of(buffer=1000.0, rate_per_s=0.8 * float(cycle_of(buffer=1000.0).most_per_s))
    state = cycle_state(cycle)
    count, whole = float(state.turn.sequences), float(state.turn.cycle_s)
    places = (np.arange(100_000) + 0.5) / 100_000
    waits = whole * (1 - places) + float(cycle.prompt_full_s) * (count - 1) * places
    assert state.steady.ttft_s == pytest.approx(float((waits + float(cycle.prompt_own_s)).mean()))
