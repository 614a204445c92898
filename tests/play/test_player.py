"""The player: many plans at once as each alone, and the rules of its streams on small lists by hand."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_lists import legal

from meshwright.play.clocks import FLOATS, Clocks, Numbers
from meshwright.play.copy_streams import CopyStreams
from meshwright.play.data_parallel_streams import EXCHANGES, DataParallelStreams
from meshwright.play.execution_order import MESSAGE, NOBODY, Step, execution_order
from meshwright.play.messages_and_barriers import Links, Rendezvous
from meshwright.play.player import Player
from meshwright.program.lowering.step_collectives import around_passes
from meshwright.schedules.action import PASS_KINDS, Action, parse_actions
from meshwright.schedules.activation_offload import OffloadedStages, with_offloads
from meshwright.schedules.dependencies import StageChains

SLOWDOWN = 0.25
BOTH = frozenset(EXCHANGES)
ALONE = frozenset[str]()


def lists_with_everything(lists, overlapped):
    """Lists with copies, a gather of each stage before and a reduction behind."""
    found = []
    for actions in with_offloads(lists, OffloadedStages(frozenset(range(64)), 1)):
        stages = sorted({action.stage for action in actions})
        early = [Action("GATHER", stage) for stage in stages]
        after = {stage: [Action("REDUCE", stage)] for stage in stages}
        found.append(around_passes(actions, early, after, overlapped="REDUCE" in overlapped))
    return found


def player_of(ranks, numbers, seconds, waits, overlapped, blocks):
    clocks = Clocks(ranks, numbers)
    exchanges = DataParallelStreams(clocks, seconds, overlapped, SLOWDOWN, blocks)
    return Player(clocks, seconds, waits, exchanges, CopyStreams(clocks, seconds["OFFLOAD"]))


@given(
    legal(), st.sampled_from([ALONE, BOTH, frozenset({"GATHER"})]), st.booleans(), st.integers(0, 2**32 - 1)
)
@settings(max_examples=60, deadline=None)
def test_many_plans_at_once_are_played_as_each_alone(made, overlapped, by_unit, seed):
    lists, ways = made
    rng, plans = np.random.default_rng(seed), 3
    kinds = (*PASS_KINDS, *EXCHANGES, "OFFLOAD")
    seconds = {kind: list(rng.uniform(0, 2, (ways.stages, plans))) for kind in kinds}
    seconds["REDUCE"][0][0] = seconds["GATHER"][0][0] = 0.0
    waits = {MESSAGE: rng.uniform(0, 1, plans)}
    blocks = None if by_unit else [2] * ways.stages
    steps = execution_order(lists_with_everything(lists, overlapped), ways)
    arrays = Numbers(np.zeros(plans), np.maximum, np.minimum)
    every = player_of(len(lists), arrays, seconds, waits, overlapped, blocks)
    every.play(steps)
    for plan in range(plans):
        alone = {kind: [float(of[plan]) for of in stages] for kind, stages in seconds.items()}
        one = player_of(len(lists), FLOATS, alone, {MESSAGE: float(waits[MESSAGE][plan])}, overlapped, blocks)
        one.play(steps)
        assert one.clocks.ends == [float(np.broadcast_to(end, plans)[plan]) for end in every.clocks.ends]
        assert one.ends_of_ranks() == [float(end[plan]) for end in every.ends_of_ranks()]


@given(legal(), st.sampled_from([ALONE, BOTH]), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_no_stream_does_two_things_at_once(made, overlapped, seed):
    lists, ways = made
    rng = random.Random(seed)
    kinds = (*PASS_KINDS, *EXCHANGES, "OFFLOAD")
    seconds = {kind: [rng.uniform(0.1, 2) for _ in range(ways.stages)] for kind in kinds}
    steps = execution_order(lists_with_everything(lists, overlapped), ways)
    player = player_of(len(lists), FLOATS, seconds, {MESSAGE: 0.1}, overlapped, None)
    player.play(steps)
    busy: dict[tuple[int, str], float] = {}
    for step, start, end in zip(steps, player.clocks.starts, player.clocks.ends, strict=True):
        stream = "exchanges" if step.kind in EXCHANGES else step.kind if step.kind[1:] else "compute"
        assert busy.get((step.rank, stream), 0.0) <= start <= end
        busy[step.rank, stream] = end


def played(text, seconds, overlapped=BOTH, blocks=None):
    """Begin and end of each action of one rank's list."""
    actions = parse_actions(text)
    steps = execution_order([actions], StageChains(1))
    seconds = {kind: [time] for kind, time in seconds.items()}
    player = player_of(1, FLOATS, {"OFFLOAD": [4.0], **seconds}, {}, overlapped, blocks)
    player.play(steps)
    return dict(
        zip(map(str, actions), zip(player.clocks.starts, player.clocks.ends, strict=True), strict=True)
    )


def test_a_first_pass_overlaps_its_gather_or_begins_behind_it():
    text, seconds = "0GATHER 0F0", {"GATHER": 3.0, "F": 4.0}
    assert played(text, seconds)["0F0"] == (3.0, 7.0)
    assert played(text, seconds, blocks=[2])["0F0"] == (0.0, 4.0 + 3.0 * SLOWDOWN)
    assert played(text, seconds | {"F": 1.0}, blocks=[2])["0F0"] == (0.0, 3.0)
    assert played(text, seconds, ALONE, blocks=[2])["0F0"] == (3.0, 7.0)


def test_a_reduction_once_a_step_begins_behind_the_first_block_and_ends_behind_the_last():
    found = played("0F0 0B0 0REDUCE", {"F": 1.0, "B": 4.0, "REDUCE": 2.0}, blocks=[2])
    slowed = 4.0 + 2.0 * SLOWDOWN
    assert found["0B0"] == (1.0, 1.0 + slowed)
    assert found["0REDUCE"] == (3.0, 1.0 + slowed + 1.0)


def test_a_reduction_of_a_unit_waits_for_the_one_before_it_and_slows_passes():
    found = played("0F0 0B0 0REDUCE 0F1", {"F": 1.0, "B": 1.0, "REDUCE": 9.0})
    assert found["0REDUCE"] == (2.0, 11.0)
    assert found["0F1"] == (2.0, 3.0 + SLOWDOWN)


def test_a_copy_out_holds_up_the_pass_behind_the_next_one_and_a_copy_back_its_backward_pass():
    found = played("0F0 0OFFLOAD0 0F1 0F2 0RELOAD0 0B0", {"F": 1.0, "B": 1.0})
    assert found["0OFFLOAD0"] == (1.0, 5.0)
    assert found["0F1"] == (1.0, 2.0)
    assert found["0F2"] == (5.0, 6.0)
    assert found["0B0"] == (10.0, 11.0)


def test_a_first_pass_that_waits_for_a_copy_overlaps_only_what_is_left_of_its_gather():
    actions = parse_actions("1GATHER 0F0 0OFFLOAD0 0F1 1F0")
    steps = execution_order([actions], StageChains(2))
    seconds = {"F": [1.0, 4.0], "OFFLOAD": [4.0, 4.0], "GATHER": [0.0, 7.0]}
    player = player_of(1, FLOATS, seconds, {}, BOTH, [2, 2])
    player.play(steps)
    assert player.clocks.starts[-1] == 5.0  # behind the copy out, when 2 of the gather's 7 are left
    assert player.clocks.ends[-1] == 9.0 + 2.0 * SLOWDOWN


def test_a_link_carries_one_message_at_a_time():
    clocks = Clocks(2, FLOATS)
    links = Links(clocks, {("SEND_F", 0): 3.0}, 0.5, {("SEND_F", 0): 1})
    send = Step(0, 0, "SEND_F", ())
    assert links.send(send, 1.0) == (1.0, 4.0)
    assert clocks.free[0] == 2.5
    assert links.send(send, 2.5) == (4.0, 7.0)
    assert clocks.free[0] == 5.5


@pytest.mark.parametrize("occupancy", [0.0, 0.5, 1.0])
def test_a_sum_begins_when_all_have_entered_it_and_keeps_each_rank(occupancy):
    clocks = Clocks(2, FLOATS)
    steps = [Step(2, 0, "REDUCE_S", ()), Step(3, 1, "REDUCE_S", ())]
    steps += [Step(2, NOBODY, "REDUCE_S", ((0, None), (1, None)))]
    meetings = Rendezvous(clocks, {"REDUCE_S": {2: 2.0, 3: 2.0}}, occupancy, [0.0, 0.0], steps)
    assert meetings.add_up(steps[0], 1.0) == (1.0, 1.0)
    assert meetings.add_up(steps[1], 5.0) == (5.0, 5.0)
    assert clocks.free == [1.0 + 2 * occupancy, 5.0 + 2 * occupancy, 0.0]
    assert meetings.add_up(steps[2], 5.0) == (5.0, 7.0)
    assert meetings.add_up(steps[2], 6.0) == (7.0, 9.0)  # the channel is busy until then


def test_a_barrier_waits_for_what_streams_have():
    steps = [Step(NOBODY, 0, "REDUCE_TIED", ()), Step(NOBODY, NOBODY, "REDUCE_TIED", ((0, None),))]
    meetings = Rendezvous(Clocks(1, FLOATS), {"REDUCE_TIED": {NOBODY: 1.5}}, 1.0, [8.0], steps)
    assert meetings.barrier(steps[0], 3.0) == (3.0, 8.0)
    assert meetings.barrier(steps[1], 8.0) == (8.0, 9.5)
