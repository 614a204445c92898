"""Copies of activations to the host and back while a Program is played, against times and bytes by hand."""

from collections import Counter
from itertools import pairwise

import pytest
from pipeline_programs import STAGE_BYTES, GivenPrices, lowered, plain_program

from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.host_offload import Offload
from meshwright.simulate.chrome_trace import perfetto_trace
from meshwright.simulate.memory_ledger import activation_curve, peak_activation_bytes, peak_host_bytes
from meshwright.simulate.plan_estimate import lower_and_simulate
from meshwright.simulate.simulator import simulate


def played_here(copy, *, micro_batches=6, ranks=1, schedule="gpipe", ahead=1, message=0.0):
    """A pipeline of F of 1 s and B of 2 s whose passes go to the host as a whole, in ``copy`` seconds each way."""
    program = plain_program(schedule, ranks, micro_batches, copied_bytes=STAGE_BYTES, ahead=ahead)
    seconds = {(stage, kind): length for stage in range(ranks) for kind, length in (("F", 1.0), ("B", 2.0))}
    return program, simulate(program, GivenPrices(seconds, message, copy))


def times_of(simulation, rank=0):
    return {str(record.action): (record.start, record.end) for record in simulation.ranks[rank]}


def test_copies_that_are_quick_enough_cost_nothing():
    _, simulation = played_here(1.0)
    assert simulation.step_s == pytest.approx(6 * 3.0)
    times = times_of(simulation)
    assert times["0OFFLOAD0"] == pytest.approx((1.0, 2.0))
    assert times["0OFFLOAD1"] == pytest.approx((2.0, 3.0))
    assert times["0RELOAD2"] == pytest.approx((times["0B1"][0], times["0B1"][0] + 1.0))


def test_a_pass_waits_for_the_copy_out_that_began_before_the_last_one():
    """F of 1 s, copies of 1.5 s one behind the other: from the third F on each waits half a second more."""
    _, simulation = played_here(1.5)
    times = times_of(simulation)
    assert times["0F1"] == pytest.approx((1.0, 2.0))
    assert times["0OFFLOAD0"] == pytest.approx((1.0, 2.5))
    assert times["0F2"] == pytest.approx((2.5, 3.5))
    assert times["0OFFLOAD1"] == pytest.approx((2.5, 4.0))
    assert times["0F3"] == pytest.approx((4.0, 5.0))


def test_a_backward_pass_waits_for_what_comes_back():
    """B of 2 s, copies of 5 s: the rank runs at the pace of its link."""
    _, simulation = played_here(5.0, ahead=2)
    times = times_of(simulation)
    back = [m for m in range(6) if f"0RELOAD{m}" in times]
    assert back
    for m in back:
        assert times[f"0B{m}"][0] >= times[f"0RELOAD{m}"][1] - 1e-9
    assert all(times[f"0RELOAD{m}"][1] - times[f"0RELOAD{m}"][0] == pytest.approx(5.0) for m in back)
    starts = sorted(times[f"0RELOAD{m}"] for m in back)
    assert all(one[1] <= other[0] + 1e-9 for one, other in pairwise(starts))


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "zb-h1", "v-half", "interleaved-1f1b"])
@pytest.mark.parametrize("copy", [0.25, 2.0])
def test_copies_of_one_direction_follow_each_other_and_lie_between_the_passes(schedule, copy):
    chunks = 1 if schedule in ("1f1b", "gpipe", "zb-h1") else 2
    program = plain_program(schedule, 4, 8, chunks, copied_bytes=STAGE_BYTES)
    seconds = {key: {"F": 1.0, "B": 2.0, "I": 1.0, "W": 1.0}[key[1]] for key in program.bodies}
    simulation = simulate(program, GivenPrices(seconds, 0.1, copy))
    gone = 0
    for rank, records in enumerate(simulation.ranks):
        times = times_of(simulation, rank)
        for kind in ("OFFLOAD", "RELOAD"):
            ends = sorted((r.start, r.end) for r in records if r.action.kind == kind)
            assert all(a[1] <= b[0] + 1e-9 for a, b in pairwise(ends))
        for record in records:
            if record.action.kind == "OFFLOAD":
                gone += 1
                which = record.action.stage, record.action.micro_batch
                back = times["{}RELOAD{}".format(*which)]
                backward = times["{}{}{}".format(which[0], "I" if program.split else "B", which[1])]
                assert times["{}F{}".format(*which)][1] <= record.start + 1e-9
                assert record.end <= back[0] + 1e-9
                assert back[1] <= backward[0] + 1e-9
    assert gone


def test_memory_is_held_until_the_pass_behind_a_copy_out_and_from_the_beginning_of_a_copy_back():
    program = plain_program("gpipe", 1, 5, copied_bytes=2)
    assert " ".join(str(action) for action in program.lists[0]).startswith(
        "0F0 0OFFLOAD0 0F1 0OFFLOAD1 0F2 0OFFLOAD2 0F3 0OFFLOAD3 0RELOAD0 0F4 0OFFLOAD4 0RELOAD1 0B0"
    )
    held = [bytes_ for _, bytes_ in activation_curve(program, 0)]
    assert held[:18] == [0, 3, 3, 6, 4, 4, 7, 5, 5, 8, 6, 6, 8, 11, 9, 9, 11, 8]
    assert max(held) == peak_activation_bytes(program, 0) == 11
    assert held[-1] == 0


def test_what_is_on_the_host_counts_from_its_copy_out_to_its_backward_pass():
    program = plain_program("gpipe", 1, 6, copied_bytes=2)
    kinds = Counter(action.kind for action in program.lists[0])
    assert kinds["OFFLOAD"] == kinds["RELOAD"] > 2
    assert peak_host_bytes(program, 0) == 2 * kinds["OFFLOAD"]
    assert peak_host_bytes(plain_program("gpipe", 1, 6), 0) == 0


def test_the_trace_shows_both_directions_of_the_way_to_the_host():
    plan = lowered(pp=4, stack="meshwright")
    short = plan.short.model_copy(update={"offload": Offload(activations="all")})
    program, simulation = lower_and_simulate(expand(short, plan.setting.model.architecture), plan.setting)
    events = perfetto_trace(program, simulation)["traceEvents"]
    names = {event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert {"to the host", "from the host"} <= names
    copies = [event for event in events if "OFFLOAD" in event["name"]]
    assert copies
    assert {event["args"]["logical_bytes"] for event in copies} == {program.offloaded_bytes[0]}
