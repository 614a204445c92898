import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_events import (
    ALL_GATHER,
    ALL_REDUCE,
    COMPUTE,
    SEND_RECV,
    annotation,
    collective,
    event,
    kernel,
    operator,
    step,
    written,
)

from meshwright.cost.closed_form.step_parts import PARTS
from meshwright.errors import InputError
from meshwright.ingestion.kineto.collective_axes import OTHER
from meshwright.ingestion.kineto.prediction_comparison import compare_with_prediction
from meshwright.ingestion.kineto.trace_breakdown import read_kineto

TRACES = Path(__file__).parent / "traces"
SAMPLES = sorted(TRACES.glob("*.json.gz"))
MICRO = 1e-6
TWO_AXES = {"tp": [[0, 1], [2, 3]], "dp_shard": [[0, 2], [1, 3]]}
OF_TP = collective("allreduce", 2, [0, 1])
OF_DP = collective("_allgather_base", 2, [0, 2])


def microseconds(seconds):
    return {name: round(value / MICRO, 6) for name, value in seconds.items() if value}


def test_communication_is_exposed_where_no_computation_covers_it(tmp_path):
    events = [
        *step(1, 0, 150),
        *kernel(COMPUTE, 0, 100, launch=0),
        *kernel(ALL_REDUCE, 60, 80, stream=20, launch=1, **OF_TP),
    ]
    found = read_kineto(written(tmp_path, events), TWO_AXES)
    assert microseconds(found.seconds) == {"compute": 100, "tp": 40, "host": 10}
    assert microseconds(found.hidden_s) == {"tp": 40}
    assert microseconds(found.kernel_s) == {"GEMM": 100, "communication": 80}
    assert (found.source, found.steps, found.device) == ("device kernels", 1, "NVIDIA H100 80GB HBM3")
    assert microseconds({"step": found.step_s}) == {"step": 150}


def test_kinds_of_communication_that_run_at_once_share_the_moment(tmp_path):
    events = [
        *step(1, 0, 100),
        *kernel(ALL_REDUCE, 0, 60, stream=20, launch=0, **OF_TP),
        *kernel(ALL_GATHER, 40, 60, stream=24, launch=0, **OF_DP),
    ]
    assert microseconds(read_kineto(written(tmp_path, events), TWO_AXES).seconds) == {"tp": 50, "dp": 50}


def test_a_moment_without_work_is_the_hosts_if_the_next_launch_came_late(tmp_path):
    events = [
        *step(1, 0, 100),
        *kernel(COMPUTE, 0, 20, launch=0),
        *kernel(COMPUTE, 30, 20, launch=21, returned=29),  # nothing was queued from 20 to 30
        *kernel(COMPUTE, 57, 43, launch=35, returned=40),  # was queued at 40, begins late all the same
    ]
    assert microseconds(read_kineto(written(tmp_path, events)).seconds) == {
        "compute": 83,
        "host": 10,
        "bubble": 7,
    }


def test_copies_to_and_from_the_host_count_as_host_where_nothing_covers_them(tmp_path):
    events = [
        *step(1, 0, 100),
        *kernel("Memcpy HtoD (Pinned -> Device)", 0, 30, stream=22, launch=0),
        *kernel(COMPUTE, 20, 60, launch=0),
        *kernel("Memcpy DtoD (Device -> Device)", 80, 15, launch=0),
        *kernel("Memcpy PtoP (Device -> Device)", 95, 5, launch=0),
    ]
    found = read_kineto(written(tmp_path, [*events, *kernel(COMPUTE, 0, 0, launch=0)]))  # begins the step
    assert microseconds(found.seconds) == {"compute": 75, "host": 20, OTHER: 5}
    assert microseconds(found.kernel_s) == {"GEMM": 60, "copy": 50}


def test_the_optimizer_is_what_was_launched_in_its_annotation_or_is_named_adam(tmp_path):
    events = [
        *step(1, 0, 100),
        *annotation("Optimizer.step#AdamW.step", 10, 10),
        *kernel(COMPUTE, 0, 40, launch=0),
        *kernel("multi_tensor_apply_kernel", 40, 25, launch=15),
        *kernel("at::native::FusedAdamMathFunctor", 65, 35, launch=30),
        *kernel(ALL_GATHER, 65, 35, stream=20, launch=16, **OF_DP),
    ]
    found = read_kineto(written(tmp_path, events), TWO_AXES)
    assert microseconds(found.seconds) == {"compute": 40, "optimizer": 60}
    assert microseconds(found.hidden_s) == {"dp": 35}


def test_steps_follow_the_kernels_when_the_device_lags_behind_the_host(tmp_path):
    events = []
    for number in range(3):
        begin = 100 * number
        events += step(number + 7, begin, 100)
        events += kernel("Memcpy HtoD (Pinned -> Device)", begin + 1, 2, stream=22, launch=begin)
        events += kernel(COMPUTE, begin + 40, 90, launch=begin + 5)
    found = read_kineto(written(tmp_path, events))
    assert [round(length / MICRO) for length in found.step_lengths_s] == [100, 100, 100]
    assert found.seconds["compute"] == pytest.approx(90 * MICRO)


def test_steps_that_do_not_follow_each_other_do_not_count_the_time_between(tmp_path):
    events = []
    for number, begin in ((1, 0), (2, 100), (9, 5000)):
        events += [*step(number, begin, 100), *kernel(COMPUTE, begin, 80, launch=begin)]
    found = read_kineto(written(tmp_path, events))
    assert [round(length / MICRO) for length in found.step_lengths_s] == [100, 100, 100]
    assert microseconds(found.seconds) == {"compute": 80, "host": 20}


def test_a_step_without_kernels_is_left_out(tmp_path):
    events = [*step(1, 0, 100), *kernel(COMPUTE, 0, 80, launch=0), *step(2, 100, 3)]
    assert read_kineto(written(tmp_path, events)).steps == 1


def test_steps_without_launches_are_those_that_the_kernels_ran_in(tmp_path):
    events = [*step(1, 0, 100), *step(2, 100, 100), *kernel(COMPUTE, 10, 60), *kernel(COMPUTE, 110, 60)]
    found = read_kineto(written(tmp_path, events))
    assert (found.steps, found.steps_marked) == (2, True)
    assert microseconds(found.seconds) == {"compute": 60, "bubble": 20, "host": 20}


def test_categories_of_early_releases(tmp_path):
    early = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "cuda_runtime": "Runtime", "cpu_op": "Operator"}
    events = [*step(1, 0, 100), *operator("aten::mm", 0, 5), *kernel(COMPUTE, 0, 60, launch=0)]
    events += kernel("Memcpy DtoH (Device -> Pinned)", 60, 30, launch=1)
    for entry in events:
        entry["cat"] = early.get(entry["cat"], entry["cat"])
    assert microseconds(read_kineto(written(tmp_path, events)).seconds) == {"compute": 60, "host": 40}


def test_without_marks_the_whole_span_is_one_step(tmp_path):
    events = [*kernel(COMPUTE, 5, 10), *kernel(COMPUTE, 20, 10)]
    found = read_kineto(written(tmp_path, events))
    assert (found.steps, found.steps_marked) == (1, False)
    assert microseconds(found.seconds) == {"compute": 20, "bubble": 5}
    assert len(found.notes) == 2  # no marks, no launches


def test_collectives_of_the_backends_annotation_are_told_apart(tmp_path):
    """Before groups were written on kernels, all-to-all and messages were one kernel."""
    axes = {"ep": [[0, 1]], "pp": [[0, 2]]}
    events = [
        *step(1, 0, 100),
        *annotation("nccl:all_to_all", 0, 5),
        *annotation("nccl:send", 10, 5),
        *kernel(SEND_RECV, 20, 30, launch=2),
        *kernel(SEND_RECV, 50, 50, launch=12),
    ]
    assert microseconds(read_kineto(written(tmp_path, events), axes).seconds) == {
        "ep": 30,
        "pp": 50,
        "host": 20,
    }


def test_the_busiest_device_is_read(tmp_path):
    events = [*step(1, 0, 100), *kernel(COMPUTE, 0, 100, launch=0)]
    events.append(event("kernel", COMPUTE, 0, 10, 3, 7, {"correlation": 999999}))
    found = read_kineto(written(tmp_path, events))
    assert microseconds(found.seconds) == {"compute": 100}
    assert "2 devices" in found.notes[0]


def test_operators_are_read_where_no_device_worked(tmp_path):
    events = [
        *step(1, 0, 100),
        *operator("aten::linear", 0, 40),
        *operator("aten::addmm", 5, 30),
        *operator("c10d::allreduce_", 40, 5),
        *annotation("Optimizer.step#SGD.step", 70, 30),
        *operator("aten::add_", 80, 10),
        event("user_annotation", "gloo:all_reduce", 30, 35, 1, 2),
    ]
    found = read_kineto(written(tmp_path, events), {"dp_replicate": [[0, 1]]})
    assert found.source == "host operators"
    assert microseconds(found.seconds) == {"compute": 40, "dp": 25, "optimizer": 10, "host": 25}
    assert microseconds(found.hidden_s) == {"dp": 10}
    assert microseconds(found.kernel_s) == {"GEMM": 40, "communication": 35, "elementwise": 10}
    tops = {top.name: round(top.seconds / MICRO) for top in found.top}
    assert tops == {"aten::addmm": 30, "aten::linear": 10, "aten::add_": 10, "gloo:all_reduce": 35}


def test_operators_that_overlap_without_lying_in_each_other_keep_their_time(tmp_path):
    events = [*step(1, 0, 100), *operator("aten::mm", 0, 50), *operator("aten::mul", 30, 60)]
    found = read_kineto(written(tmp_path, events))
    assert microseconds(found.kernel_s) == {"GEMM": 50, "elementwise": 60}
    assert microseconds(found.seconds) == {"compute": 90, "host": 10}


def test_a_trace_that_only_starts_collectives_has_nothing_but_host_time(tmp_path):
    events = [*step(1, 0, 10), *operator("c10d::allreduce_", 0, 5)]
    assert microseconds(read_kineto(written(tmp_path, events)).seconds) == {"host": 10}


PIECES = st.lists(
    st.tuples(
        st.sampled_from(["compute", "optimizer", "tp", "dp", "copies"]),
        st.integers(0, 40),
        st.integers(1, 15),
        st.integers(0, 45),
    ),
    min_size=1,
    max_size=9,
)


def as_events(pieces):
    """One stream for each piece; launches return when they say."""
    names = {"compute": COMPUTE, "optimizer": "FusedAdam", "copies": "Memcpy DtoH (Device -> Pinned)"}
    said = {"tp": OF_TP, "dp": OF_DP}
    events = [*step(3, 0, 60), *kernel("opening", 0, 1, stream=99, launch=0)]
    for stream, (owner, start, length, launch) in enumerate(pieces):
        name = names.get(owner, ALL_REDUCE if owner == "tp" else ALL_GATHER)
        events += kernel(name, start, length, stream, launch, **said.get(owner, {}))
    return events


def owners_by_the_microsecond(pieces):
    """The same rules, moment by moment."""
    pieces = [("compute", 0, 1, 0), *pieces]
    owned = dict.fromkeys((*PARTS, OTHER), 0.0)
    for moment in range(60):
        running = {owner for owner, start, length, _ in pieces if start <= moment < start + length}
        kinds = running & {"tp", "dp"}
        if running & {"compute", "optimizer"}:
            owned[min(running & {"compute", "optimizer"})] += 1
        elif kinds:
            for kind in kinds:
                owned[kind] += 1 / len(kinds)
        elif running:
            owned["host"] += 1
        else:
            owned[reason_for_none(pieces, moment)] += 1
    return owned


def reason_for_none(pieces, moment):
    began = max(start + length for _, start, length, _ in pieces if start <= moment)
    coming = [(start, launch) for _, start, _, launch in pieces if start > moment]
    return "host" if not coming or min(coming)[1] > began else "bubble"


@settings(max_examples=150, deadline=None)
@given(pieces=PIECES)
def test_every_moment_is_divided_by_the_rules(tmp_path_factory, pieces):
    found = read_kineto(written(tmp_path_factory.mktemp("t"), as_events(pieces)), TWO_AXES)
    assert {
        name: pytest.approx(value * MICRO) for name, value in owners_by_the_microsecond(pieces).items()
    } == (found.seconds)
    assert sum(found.seconds.values()) == pytest.approx(found.step_s, rel=1e-12)


@settings(max_examples=40, deadline=None)
@given(pieces=PIECES, shift=st.integers(-(10**9), 10**15), seed=st.randoms(use_true_random=False))
def test_other_clocks_orders_and_cuts_change_nothing(tmp_path_factory, pieces, shift, seed):
    folder, events = tmp_path_factory.mktemp("t"), as_events(pieces)
    found = read_kineto(written(folder, events), TWO_AXES)
    moved = [entry | {"ts": entry["ts"] + shift} for entry in events]
    seed.shuffle(moved)
    later = read_kineto(written(folder, moved), TWO_AXES)
    assert later.seconds == pytest.approx(found.seconds)
    assert later.hidden_s == pytest.approx(found.hidden_s)
    longest = max((entry for entry in events if "gpu" in entry["cat"] or entry["cat"] == "kernel"), key=dur)
    halves = [
        longest | {"dur": dur(longest) / 2, "ts": longest["ts"] + part} for part in (0, dur(longest) / 2)
    ]
    cut = read_kineto(written(folder, [e for e in events if e is not longest] + halves), TWO_AXES)
    assert cut.seconds == pytest.approx(found.seconds)
    assert cut.kernel_s == pytest.approx(found.kernel_s)


def dur(entry):
    return entry["dur"]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name.partition(".")[0])
def test_real_traces_add_up(path):
    found = read_kineto(path)
    assert sum(found.seconds.values()) == pytest.approx(found.step_s, rel=1e-9)
    assert found.step_s == pytest.approx(sum(found.step_lengths_s) / found.steps)
    assert min(found.seconds.values()) >= 0
    assert min(found.hidden_s.values()) >= 0
    assert sum(top.seconds for top in found.top) <= sum(found.kernel_s.values()) * (1 + 1e-9)
    assert found.steps_marked
    json.dumps(found.to_json(), allow_nan=False)


def test_a_real_trace_of_data_parallelism_finds_its_axis_with_a_plan():
    path = TRACES / "ddp_rank_0_of_2_cut.json.gz"
    alone = read_kineto(path)
    assert alone.seconds["dp"] == 0 < alone.seconds[OTHER]
    planned = read_kineto(path, {"dp_replicate": [[0, 1]]})
    assert planned.seconds["dp"] == pytest.approx(alone.seconds[OTHER])
    assert planned.hidden_s["dp"] > 0
    assert planned.seconds[OTHER] == 0
    assert (planned.rank, planned.world_size, planned.device) == (0, 2, "NVIDIA A100-PG509-200")
    assert planned.seconds["optimizer"] > 0


def test_a_real_trace_agrees_with_its_own_kernels():
    """Time in which anything runs but NCCL and copies with the host, counted from the JSON."""
    path = TRACES / "ddp_rank_0_of_2_cut.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    other = ("nccl", "HtoD", "DtoH")
    work = [e for e in events if e["pid"] == 0 and not any(name in e["name"] for name in other)]
    covered, reached = 0.0, 0.0
    for entry in sorted(work, key=lambda entry: entry["ts"]):
        covered += max(0.0, entry["ts"] + entry["dur"] - max(reached, entry["ts"]))
        reached = max(reached, entry["ts"] + entry["dur"])
    found = read_kineto(path)
    assert found.seconds["compute"] + found.seconds["optimizer"] == pytest.approx(covered * MICRO, rel=1e-5)


def test_a_real_cpu_trace_shows_gloo():
    found = read_kineto(TRACES / "gloo_rank_34_of_300_cut.json.gz", {"dp_replicate": [list(range(300))]})
    assert found.source == "host operators"
    assert found.seconds["dp"] > 0.8 * found.step_s
    assert (found.rank, found.world_size) == (34, 300)


def test_a_measured_breakdown_beside_a_predicted_one(tmp_path):
    events = [
        *step(1, 0, 100),
        *kernel(COMPUTE, 0, 60, launch=0),
        *kernel(ALL_REDUCE, 60, 30, stream=20, launch=1, **OF_TP),
        *kernel(COMPUTE, 95, 5, launch=2),
    ]
    measured = read_kineto(written(tmp_path, events), TWO_AXES)
    predicted = dict.fromkeys(PARTS, 0.0) | {"compute": 70 * MICRO, "tp": 5 * MICRO, "pp": 3 * MICRO}
    beside = compare_with_prediction(measured, predicted)
    rows = {row.category: row for row in beside.rows}
    assert beside.largest == "tp"
    assert rows["tp"].difference_s == pytest.approx(25 * MICRO)
    assert rows["pp + bubble"].difference_s == pytest.approx(2 * MICRO)
    assert sum(row.difference_s for row in beside.rows) == pytest.approx(beside.step.difference_s)
    json.dumps(beside.to_json(), allow_nan=False)


def test_a_prediction_with_other_categories_is_refused(tmp_path):
    measured = read_kineto(written(tmp_path, kernel(COMPUTE, 0, 60)))
    with pytest.raises(InputError) as error:
        compare_with_prediction(measured, {"compute": 1.0, "fsdp": 2.0, "tensor": 1.0})
    assert {problem.field for problem in error.value.problems} == {"breakdown_s.fsdp", "breakdown_s.tensor"}
