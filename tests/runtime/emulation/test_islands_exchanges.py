"""Exchanges between islands on emulated ranks: against the played round, and islands that wait for each other."""

import random
from dataclasses import replace
from itertools import pairwise

import pytest

pytest.importorskip("torch")

import torch
from emulated_programs import case, sleeping_wall, started

from meshwright.cost.operators.price_plans import program_prices
from meshwright.cost.synchronisation.exchanges_of_islands import ProgramExchanges
from meshwright.cost.synchronisation.round_time import EntryTimes, play_rounds
from meshwright.plans.synchronisation.periods import Periods
from meshwright.plans.synchronisation.synchronisation import Synchronisation
from meshwright.runtime.comm.process_groups import message_pairs
from meshwright.runtime.emulation.communicator import EmulatedCommunicator
from meshwright.runtime.emulation.emulate import emulate
from meshwright.runtime.emulation.emulation_result import EmulatedSteps
from meshwright.runtime.emulation.islands_exchanges import (
    CODEC,
    STREAM,
    UPDATE,
    WAIT,
    EmulatedSynchroniser,
)
from meshwright.runtime.emulation.local_program import local_program
from meshwright.runtime.emulation.modelled_durations import ExchangeTime
from meshwright.runtime.emulation.units_and_optimizer import EmulatedOptimizer, emulated_plan
from meshwright.runtime.state.step_options import StepOptions
from meshwright.schedules.action import Action

DILOCO = {"state": "parameter", "over": "dp_replicate", "every": 2, "outer": {"sgd": {"lr": 1.0}}}
STEP_S, SCALE = 1.0, 0.05


@pytest.fixture(scope="module")
def islands():
    return case(4, stack="meshwright", dp_replicate=2, synchronise=(DILOCO,))


def entry(**keys):
    return Synchronisation.model_validate({"state": "parameter", "over": "dp_replicate", **keys})


def drawn(draw):
    """Return entries with made-up times of their fragments; updates take none."""
    entries, times = [], {}
    for number in range(draw.randint(1, 3)):
        every = draw.choice((1, 2, 3, 4, 6))
        said = entry(every=every, delay=draw.randint(0, every), fragments=draw.randint(1, every))
        entries.append(said)
        for fragment in range(int(said.fragments)):
            times[number, fragment] = (ExchangeTime(draw.uniform(0.1, 5), draw.uniform(0, 0.5), 0.0),)
    return tuple(entries), times


def synchroniser_of(found, entries, times):
    """Return the exchanges of the only process of a pipeline rank, with its optimizer."""
    program = replace(local_program(found.program, 1), synchronise=entries)
    durations = replace(found.times, between_islands=times)
    clock = started(slack_s=1e9)
    communicator = EmulatedCommunicator(0, program, torch.device("cpu"), clock=clock, times=durations)
    plan = emulated_plan(program, communicator)
    optimizer = EmulatedOptimizer(plan, StepOptions(), clock=clock, seconds=STEP_S, codec_s=0.0)
    return EmulatedSynchroniser(plan, optimizer, clock=clock, times=durations)


def step(of_rank):
    """Take a step, and what is due behind it."""
    of_rank.begin_step(None)
    of_rank.optimizer.update(0.0)
    for number in of_rank.entries:
        of_rank.begin(Action("SYNC_BEGIN", number))
        of_rank.end(Action("SYNC_END", number))


@pytest.mark.parametrize("seed", range(50))
def test_exchanges_take_the_time_of_the_played_ones(seed, islands, monkeypatch):
    sleeping_wall(monkeypatch)
    entries, times = drawn(random.Random(seed))
    of_rank = synchroniser_of(islands, entries, times)
    for _ in range(24):
        step(of_rank)
    played = play_rounds(
        STEP_S,
        [
            EntryTimes(n, Periods(entries[n]), *zip(*_fragments(times, n), strict=True))
            for n in of_rank.entries
        ],
        24,
        whole_run=True,
    )
    assert of_rank.clock.now == pytest.approx(played.seconds, rel=1e-12)
    for number in of_rank.entries:
        assert _sum(of_rank.records, number, WAIT) == pytest.approx(played.exposed_s[number], abs=1e-9)
        assert _sum(of_rank.records, number, CODEC) == pytest.approx(played.codec_s[number], abs=1e-9)
    begun = [one for one in of_rank.records if one.stream == CODEC]
    assert len(begun) == sum(played.begun.values())


def _fragments(times, number):
    return [
        (time.exchange_s, time.codec_s, time.update_s) for (n, _), (time,) in times.items() if n == number
    ]


def _sum(records, number, about):
    return sum(one.end - one.start for one in records if (one.action.stage, one.stream) == (number, about))


def test_the_stream_carries_one_exchange_at_a_time(islands, monkeypatch):
    sleeping_wall(monkeypatch)
    times = {(n, 0): (ExchangeTime(3.0, 0.0, 0.0),) for n in range(2)}
    of_rank = synchroniser_of(islands, (entry(every=4, delay=4), entry(every=4, delay=4)), times)
    for _ in range(12):
        step(of_rank)
    on_stream = [(one.start, one.end) for one in of_rank.records if one.stream == STREAM]
    assert on_stream[:2] == [(4.0, 7.0), (7.0, 10.0)]
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(on_stream))


def test_updates_take_their_time_at_the_end_of_an_exchange_the_first_empty_one_too(islands, monkeypatch):
    sleeping_wall(monkeypatch)
    of_rank = synchroniser_of(islands, (entry(every=2, delay=2),), {(0, 0): (ExchangeTime(0.5, 0.25, 0.75),)})
    for _ in range(4):
        step(of_rank)
    assert of_rank.clock.now == pytest.approx(4 + 2 * (0.25 + 0.75))
    assert [one.start for one in of_rank.records if one.stream == UPDATE] == pytest.approx([2.25, 5.25])


def test_an_island_waits_for_a_slower_one_in_exchanges_only(islands):
    """The second island's steps are three times as long; the first one waits for it behind every second step."""
    step_s = islands.simulated.step_s

    def slower(interpreter):
        if interpreter.plan.communicator.rank == 1:
            interpreter.states.optimizer.seconds += 2 * step_s

    emulation = emulate(
        local_program(islands.program, 2),
        islands.times,
        step_s,
        steps=EmulatedSteps(0, 4),
        prepare=slower,
        scale=SCALE / step_s,
    )
    first, second = emulation.ranks
    exchange_s = islands.times.between_islands[0, 0][0].exchange_s
    on_stream, waits = _about(first, STREAM), _about(first, WAIT)
    assert len(on_stream) == len(waits) == 2
    assert on_stream == _about(second, STREAM)
    encoded = zip(_about(first, CODEC), _about(second, CODEC), strict=True)
    for (start, end), wait, codecs in zip(on_stream, waits, encoded, strict=True):
        assert start == max(of_rank for _, of_rank in codecs)
        assert end == pytest.approx(start + exchange_s)
        assert wait[1] == end
        assert wait[1] - wait[0] > exchange_s
    assert first.end_s >= 4 * 3 * step_s


def _about(rank, about):
    return [(one.start, one.end) for one in rank.exchanges if one.stream == about]


def test_emulated_ranks_have_the_prices_of_their_exchanges(islands):
    """Those from which rounds are played, of each pipeline rank."""
    found = case(4, stack="meshwright", pp=2, dp_replicate=2, synchronise=(DILOCO | {"fragments": 2},))
    exchanges = ProgramExchanges(found.program, program_prices(found.program, found.setting))
    (times,) = exchanges.times(None)
    for fragment in range(2):
        of_ranks = found.times.between_islands[0, fragment]
        assert len(of_ranks) == 2
        assert max(one.exchange_s for one in of_ranks) == times.exchange_s[fragment] > 0
        assert max(one.update_s for one in of_ranks) == times.update_s[fragment] > 0
    assert islands.times.codec_s == (0.0,)


def test_codecs_inside_a_step_take_their_time_before_the_optimizer(monkeypatch):
    sleeping_wall(monkeypatch)
    gradients = {"state": "gradient", "over": "dp_replicate", "compress": {"quantise": "int8"}}
    found = case(4, stack="meshwright", dp_replicate=2, synchronise=(gradients,))
    (codec_s,) = found.times.codec_s
    assert codec_s > 0
    assert not found.times.between_islands
    of_rank = synchroniser_of(found, found.program.synchronise, {})
    of_rank.optimizer.codec_s = codec_s
    step(of_rank)
    assert of_rank.clock.now == pytest.approx(codec_s + STEP_S)
    (taken,) = of_rank.clock.records
    assert (taken.start, taken.end) == pytest.approx((codec_s, codec_s + STEP_S))


def test_processes_stand_for_islands_first():
    found = case(4, stack="meshwright", tp=2, dp_replicate=2, synchronise=(DILOCO,))
    grid = local_program(found.program, 2).parts.only.grid
    assert (grid.sizes["dp_replicate"], grid.sizes["tp"]) == (2, 1)


def test_experts_stay_inside_an_island():
    keys = {"model": "mixtral-8x7b", "stack": "meshwright", "recomputed": 0, "sharding": "zero1"}
    found = case(8, dp_replicate=2, dp_shard=4, ep=4, synchronise=(DILOCO,), **keys)
    sizes = local_program(found.program, 4).parts.only.expert_grid.sizes
    assert (sizes["edp_replicate"], sizes["ep"]) == (2, 2)


def test_exchanges_between_islands_are_no_messages_of_a_pipeline():
    found = case(4, stack="meshwright", pp=2, dp_replicate=2, synchronise=(DILOCO,))
    assert message_pairs(found.program) == {(0, 1), (1, 0)}
