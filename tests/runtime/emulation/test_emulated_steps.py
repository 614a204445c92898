"""Emulated steps against the simulator and against tables of schedules: equal times, and faults that show."""

from collections import Counter
from dataclasses import replace

import pytest

pytest.importorskip("torch")

from emulated_programs import LATE, blocked, case, expected, in_time, of_plan, plain

from meshwright.errors import RunError, UnsupportedError
from meshwright.runtime.comm.pipeline_messages import PipelineMessages
from meshwright.runtime.emulation.emulate import emulate
from meshwright.runtime.emulation.local_program import local_program
from meshwright.schedules.action import Action
from meshwright.simulate.memory_ledger import peak_activation_bytes

UNIT_S = 0.02
UNITS = {"pp": 2, "dp_shard": 2, "sharding": "zero3", "gather": "per-unit", "schedule": "zeropp", "chunks": 2}
UNITS |= {"stack": "meshwright"}
EXPERTS = {"model": "mixtral-8x7b", "pp": 2, "stack": "meshwright", "recomputed": 0}
CASES = [
    ({"pp": 2, "tp": 2, "dp_shard": 2, "sharding": "zero1", "stack": "meshwright"}, 4),
    ({"pp": 2, "schedule": "v-half", "chunks": 2}, 2),
    ({"pp": 2, "cp": 4, "stack": "meshwright"}, 2),
    ({"pp": 2, "dp_shard": 2, "sharding": "zero1", "schedule": "dualpipe", "chunks": 2}, 4),
    ({"pp": 2, "dp_shard": 2, "sharding": "zero3", "gather": "per-layer", "schedule": "gpipe"}, 4),
    ({"pp": 2, "schedule": "zb-h1", "recomputed": 8}, 2),
    ({"pp": 2, "schedule": "interleaved-1f1b", "chunks": 2, "recomputed": 6}, 2),
    ({"pp": 2, "tp": 2, "vocabulary": "vocab-1"}, 4),
    ({"pp": 4, "schedule": "v-half", "chunks": 2, "vocabulary": "vocab-2"}, 4),
    ({"pp": 4, "vocabulary": "interlaced"}, 4),
    ({"pp": 4, "offload": {"activations": "all"}, "recomputed": 0}, 4),
    ({"pp": 4, "offload": {"activations": 0.5, "ahead": 2}, "schedule": "zb-h1", "recomputed": 4}, 4),
    (
        {
            "pp": 2,
            "offload": {"activations": "all"},
            "vocabulary": "vocab-2",
            "schedule": "v-half",
            "chunks": 2,
        },
        2,
    ),
    (UNITS | {"offload": {"activations": "all"}}, 4),
    ({"pp": 4, "schedule": "zb-h2", "stack": "megatron-zero-bubble"}, 4),
    ({"pp": 2, "tp": 2, "sharding": "zero1", "schedule": "zb-h1", "stack": "megatron-zero-bubble"}, 4),
    (EXPERTS | {"dp_shard": 4, "ep": 4, "sharding": "zero1", "recomputed": 4}, 4),
    (EXPERTS | {"dp_shard": 2, "tp": 2, "ep": 2, "etp": 2, "sharding": "zero1"}, 8),
    (EXPERTS | {"dp_shard": 4, "ep": 2, "sharding": "zero1", "global_batch": 4}, 4),
    (EXPERTS | {"dp_shard": 2, "ep": 2, "sharding": "zero1", "schedule": "dualpipe", "chunks": 2}, 4),
    (UNITS, 4),
    (UNITS | {"schedule": "looped-bfs", "stack": "generic"}, 2),
]


def spans(records):
    return {(one.action, one.stream): one.end - one.start for one in records}


def beside_exchanges(records):
    """Exchanges on the data-parallel stream and what runs beside them: what begins late has less beside it."""
    exchanges = [one for one in records if one.stream == "data-parallel"]
    return {
        (one.action, one.stream)
        for one in records
        if any(one.start <= other.end and other.start <= one.end for other in exchanges)
    }


def times_run(records):
    return Counter(one.action for one in records)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(("arguments", "processes"), CASES, ids=str)
def test_a_plan_takes_no_less_than_the_simulated_time_and_holds_the_ledgers_bytes(arguments, processes):
    # of steps that overlap one is timed from the end of the one before, which may have been late itself
    found = case(**arguments)
    local, emulation = found.emulated(processes)
    assert local.parts.ranks == processes
    earliest = -LATE if found.program.steps_overlap and emulation.late else 0.0
    assert earliest <= emulation.step_s / found.simulated.step_s - 1 + 1e-9
    for rank in emulation.ranks:
        assert rank.peak_bytes == peak_activation_bytes(found.program, rank.pipeline_rank)
        simulated = spans(found.simulated.ranks[rank.pipeline_rank])
        assert spans(rank.actions).keys() == simulated.keys()
        assert times_run(rank.actions) == times_run(found.simulated.ranks[rank.pipeline_rank])
        free = simulated.keys() - beside_exchanges(found.simulated.ranks[rank.pipeline_rank])
        assert free
        assert all(spans(rank.actions)[key] >= simulated[key] - 1e-9 for key in free)


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "processes"), CASES, ids=str)
def test_a_plan_takes_hardly_longer_than_simulated(arguments, processes):
    """A bound on time: a busy machine exceeds it."""
    found = case(**arguments)
    _, emulation = found.emulated(processes)
    assert emulation.step_s / found.simulated.step_s - 1 < LATE


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_a_pipeline_takes_the_time_of_its_table(schedule):
    program, times = plain(schedule)
    whole = expected(program, times)
    emulation = in_time(lambda: emulate(program, times, whole, scale=UNIT_S), whole)
    assert 0 <= emulation.step_s / whole - 1 + 1e-9 < LATE


def test_an_interpreter_that_blocks_on_each_send_is_late():
    program, times = plain("zb-h1", micro_batches=8, pp=4)
    whole = expected(program, times)
    emulation = emulate(program, times, whole, scale=UNIT_S, prepare=blocked)
    assert emulation.step_s > 1.1 * whole


class Swapped(PipelineMessages):
    """The fault: the first two messages of a channel are received in the wrong order."""

    def begin_step(self):
        super().begin_step()
        for row in self.expected.values():
            row[0], row[1] = row[1], row[0]


def swapped(interpreter):
    plan = interpreter.plan
    interpreter.channels = Swapped(plan.program, plan.communicator, plan.pipeline_rank, plan.message_buffer)


def test_a_wrong_message_of_equal_shape_is_named():
    program, times = plain("1f1b", pp=2)
    with pytest.raises(RunError, match=r"RECV_[FB]\d: the message is \[.*\], expected"):
        emulate(program, times, expected(program, times), scale=UNIT_S, prepare=swapped, grace_s=2)


def test_lists_that_wait_for_each_other_are_refused_with_action_and_ranks():
    program, times = plain("1f1b", micro_batches=2, pp=2)
    first, second = program.lists
    early = Action("RECV_B", 0, 0)
    stuck = (early, *(action for action in first if action != early))
    with pytest.raises(RunError, match=r"RECV_[FB]0: receive \d+RECV_[FB]0 among ranks \d, \d"):
        emulate(replace(program, lists=(stuck, second)), times, 1.0, scale=UNIT_S, grace_s=1)


def test_a_plan_of_two_layouts_is_emulated_too():
    found = of_plan(
        """
plan: 1
model: llama-3.2-1b
cluster: h100-sxm-80gb x 16
stack: meshwright
workload: {task: pretrain, seq_len: 4096, global_batch: 32, precision: bf16}
layouts:
  a:
    grid: {dp_shard: 4, tp: 2}
    order: [tp, cp, dp_shard, dp_replicate, pp]
    sequence_parallel: true
    states: {optimizer: [dp_shard, cp]}
  b:
    grid: {dp_shard: 8}
    order: [tp, cp, dp_shard, dp_replicate, pp]
    states: {optimizer: [dp_shard, cp], gradient: [dp_shard, cp], parameter: [dp_shard, cp]}
layers: {embed: {layout: a}, 0..7: {layout: a}, 8..11: {layout: b}, 12..15: {layout: a}, head: {layout: a}}
pipeline: {placement: [0, 1], micro_batch: 1, schedule: {name: 1f1b}}
"""
    )
    _, emulation = found.emulated(2)
    assert emulation.step_s / found.simulated.step_s - 1 >= -1e-9
    for rank in emulation.ranks:
        assert rank.peak_bytes == peak_activation_bytes(found.program, rank.pipeline_rank)
        assert times_run(rank.actions) == times_run(found.simulated.ranks[rank.pipeline_rank])


def test_only_one_process_stands_for_a_pipeline_rank_of_several_layouts():
    pair = case(pp=2, tp=2).program
    two = replace(pair, parts=replace(pair.parts, every=(pair.parts.only, pair.parts.only)))
    with pytest.raises(UnsupportedError, match="one process stands for each of the 2 pipeline ranks"):
        local_program(two, 4)
