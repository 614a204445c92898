"""The trace of a simulated step: valid, complete, without overlaps, and the same every time."""

import itertools
import json
from collections import defaultdict

import pytest
from pipeline_programs import lowered

from meshwright.simulate.chrome_trace import COMPUTE, COUNTER, perfetto_trace
from meshwright.simulate.memory_ledger import peak_activation_bytes

CASES = [
    {"pp": 1, "dp_replicate": 2},
    {"pp": 4, "dp_shard": 2, "sharding": "zero1"},
    {"pp": 2, "dp_shard": 2, "sharding": "zero3", "schedule": "gpipe"},
    {"pp": 2, "tp": 2, "schedule": "interleaved-1f1b", "virtual_stages": 2, "stack": "torchtitan"},
    {"pp": 2, "dp_shard": 4, "sharding": "zero1", "stack": "deepspeed"},
]
NANOSECOND_US = 1e-3


@pytest.fixture(params=CASES, ids=str)
def traced(request):
    case = lowered(**request.param)
    simulation = case.simulated()
    return case.program, simulation, perfetto_trace(case.program, simulation)


def of_phase(trace, phase):
    return [event for event in trace["traceEvents"] if event["ph"] == phase]


def test_a_trace_is_json_and_says_that_it_is_simulated(traced):
    _, simulation, trace = traced
    assert json.loads(json.dumps(trace, allow_nan=False)) == trace
    assert trace["otherData"]["origin"] == "simulated"
    assert trace["otherData"]["step_time_s"] == simulation.step_s
    timed = [event for event in trace["traceEvents"] if event["ph"] != "M"]
    assert all(event["cat"].split(",")[0] == "simulated" for event in timed)
    assert all("simulated" in e["args"]["name"] for e in of_phase(trace, "M") if e["name"] == "process_name")


def test_equal_steps_give_equal_traces(traced):
    program, simulation, trace = traced
    assert json.dumps(perfetto_trace(program, simulation)) == json.dumps(trace)


def test_nothing_overlaps_on_one_thread_and_the_last_event_ends_the_step(traced):
    _, simulation, trace = traced
    threads = defaultdict(list)
    for event in of_phase(trace, "X"):
        threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in threads.values():
        spans.sort()
        assert all(a[1] <= b[0] + NANOSECOND_US for a, b in itertools.pairwise(spans))
    end = max(end for spans in threads.values() for _, end in spans)
    assert end == pytest.approx(simulation.step_s * 1e6, abs=NANOSECOND_US)
    assert min(start for spans in threads.values() for start, _ in spans) == 0
    named = {(e["pid"], e["tid"]) for e in of_phase(trace, "M") if e["name"] == "thread_name"}
    assert set(threads) <= named


def test_every_record_is_an_event_with_its_stage_micro_batch_and_bytes(traced):
    program, simulation, trace = traced
    events = of_phase(trace, "X")
    records = [record for records in simulation.ranks for record in records]
    assert [event["name"] for event in events] == [str(record.action) for record in records]
    for event, record in zip(events, records, strict=True):
        arguments = event["args"]
        assert arguments.get("stage") == record.action.stage
        assert arguments.get("micro_batch") == record.action.micro_batch
        if record.action.kind in ("SEND_F", "SEND_B"):
            assert arguments["logical_bytes"] == program.parts.only.message_bytes
        elif (record.action.stage, record.action.kind) in program.collectives:
            exchanged = program.collectives[record.action.stage, record.action.kind]
            assert arguments["logical_bytes"] == sum(int(c.logical_bytes) for c in exchanged)
        else:
            assert "logical_bytes" not in arguments


def test_the_counter_goes_up_to_the_peak_and_back_to_nothing(traced):
    program, _, trace = traced
    for rank in range(program.pipeline_ranks):
        counts = [e for e in of_phase(trace, "C") if e["pid"] == rank and e["name"] == COUNTER]
        values, times = [c["args"]["bytes"] for c in counts], [c["ts"] for c in counts]
        assert times == sorted(times)
        assert values[0] == values[-1] == 0
        assert max(values) == peak_activation_bytes(program, rank) > 0


def test_an_arrow_leads_from_every_send_to_a_pass_that_begins_after_it_has_arrived(traced):
    program, simulation, trace = traced
    tails, heads = of_phase(trace, "s"), of_phase(trace, "f")
    sends = [r for records in simulation.ranks for r in records if r.stream == "send"]
    assert [tail["id"] for tail in tails] == [head["id"] for head in heads] == list(range(len(sends)))
    assert len(sends) == len(list(program.edges()))
    starts = {(e["pid"], e["tid"], e["ts"]) for e in of_phase(trace, "X")}
    for tail, head, send in zip(tails, heads, sends, strict=True):
        assert tail["pid"] != head["pid"]
        assert (head["pid"], COMPUTE, head["ts"]) in starts
        assert head["ts"] >= send.end * 1e6 - NANOSECOND_US
