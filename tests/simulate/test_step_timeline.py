"""A simulated step as columns: every action and every byte comes back, each distinct action is said once."""

import json
from itertools import accumulate

import pytest
from pipeline_programs import lowered

from meshwright.simulate.memory_ledger import activation_curve, peak_activation_bytes
from meshwright.simulate.step_streams import logical_bytes, stream_names, stream_of
from meshwright.simulate.step_timeline import NANOSECONDS, memory_over_time, step_timeline

CASES = [
    {"pp": 1, "dp_replicate": 2},
    {"pp": 4, "dp_shard": 2, "sharding": "zero1"},
    {"pp": 2, "tp": 2, "schedule": "interleaved-1f1b", "virtual_stages": 2, "stack": "torchtitan"},
]


@pytest.fixture(params=CASES, ids=str, scope="module")
def played(request):
    case = lowered(**request.param)
    return case.program, case.simulated()


def expanded(timeline):
    """Every action of a timeline as (rank, stream, kind, stage, micro-batch, start, duration, bytes)."""
    for rank in timeline["ranks"]:
        for stream in rank["streams"]:
            columns = stream["body"], stream["micro_batch"], accumulate(stream["start"])
            for body, batch, start in zip(*columns, strict=True):
                own = timeline["bodies"][body]
                batch = None if batch < 0 else batch
                numbers = start, own["duration"], own["bytes"]
                yield rank["rank"], stream["stream"], own["action"], own["stage"], batch, *numbers


def test_all_actions_come_back(played):
    program, simulation = played
    timeline = json.loads(json.dumps(step_timeline(program, simulation, {}), allow_nan=False))
    wanted = []
    for rank, records in enumerate(simulation.ranks):
        names = stream_names(program, rank)
        for record in records:
            begin, end = (round(seconds * NANOSECONDS) for seconds in (record.start, record.end))
            action, moved = record.action, logical_bytes(program, record.action)
            stream = names[stream_of(program, record)]
            wanted.append(
                (rank, stream, action.kind, action.stage, action.micro_batch, begin, end - begin, moved)
            )
    assert sorted(expanded(timeline), key=repr) == sorted(wanted, key=repr)
    bodies = [json.dumps(body) for body in timeline["bodies"]]
    assert len(bodies) == len(set(bodies)) < len(wanted)
    assert timeline["origin"] == "simulated"
    assert timeline["step_time_s"] == simulation.step_s


def test_streams_do_not_overlap(played):
    program, simulation = played
    for rank in step_timeline(program, simulation, {})["ranks"]:
        for stream in rank["streams"]:
            assert min(stream["start"]) >= 0


def test_passes_have_their_parts(played):
    program, simulation = played
    parts = {(0, "F"): {"compute": 2.0, "tp": 0.0, "cp": 1.0}}
    bodies = step_timeline(program, simulation, parts)["bodies"]
    found = {(body["stage"], body["action"]): body["parts_s"] for body in bodies}
    assert found[0, "F"] == {"compute": 2.0, "cp": 1.0}
    assert not found[0, "B"]


def test_memory_reaches_the_peak_of_the_ledger_and_never_more(played):
    program, simulation = played
    ranks = range(program.pipeline_ranks)
    ledgers = [{"parameters": 7, "activations": peak_activation_bytes(program, rank)} for rank in ranks]
    curves = memory_over_time(program, simulation, ledgers)
    for rank, curve in enumerate(curves):
        held = list(accumulate(curve["activations"]))
        assert curve["held"] == {"parameters": 7}
        assert max(held) == peak_activation_bytes(program, rank)
        assert held[-1] == activation_curve(program, rank)[-1][1] == 0
        assert all(later >= 0 for later in curve["time"])
        assert sum(curve["time"]) <= round(simulation.step_s * NANOSECONDS)
    halved = [ledger | {"activations": ledger["activations"] // 2} for ledger in ledgers]
    for ledger, curve in zip(halved, memory_over_time(program, simulation, halved), strict=True):
        assert max(accumulate(curve["activations"])) == ledger["activations"]
