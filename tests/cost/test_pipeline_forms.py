"""Pipelines: what is played equals the schedule table, closed forms come close, counts in flight are exact."""

import random
from itertools import pairwise

import numpy as np
import pytest

from meshwright.cost.in_flight import in_flight, sufficient
from meshwright.cost.pipeline import FORMS, PLAYED_ACTIONS, PLAYED_UNEVEN_ACTIONS, pipeline_seconds
from meshwright.cost.played import Passes, periodic_micro_batches, played_seconds, played_span
from meshwright.plan.layers import balanced_counts
from meshwright.schedule import SCHEDULES
from meshwright.schedule.timeline import run
from meshwright.schedule.times import rounded_times

BOUND = 0.03
UNEVEN_INTERLEAVED_BOUND = 0.09


INPUT_SHARE = 0.6


def random_shape(schedule, rng):
    if SCHEDULES[schedule].chunked:
        ranks, chunks = rng.choice((2, 4, 8, 16)), rng.choice((2, 3, 4))
        chunks = SCHEDULES[schedule].fixed_chunks or chunks
        return ranks, ranks * rng.randint(1, 10), chunks
    return rng.choice((1, 2, 3, 4, 6, 8, 16, 32)), rng.randint(1, 100), 1


def random_passes(stages, rng, equal_layers):
    """Layers as a plan balances them, and a little more in the first and the last stage."""
    layers = stages * rng.randint(1, 4) if equal_layers else rng.randint(stages, 4 * stages)
    forward = np.array(balanced_counts(layers, stages), dtype=float)
    backward = 2 * forward * rng.uniform(0.9, 1.3)
    message = rng.choice((0, 0.02, 0.05, 0.1, 0.2)) * forward.min()
    head = rng.uniform(0, 1.2)
    forward[0] += rng.uniform(0, 0.3)
    backward[0] += rng.uniform(0, 0.3)
    forward[-1] += head
    backward[-1] += 2 * head
    return forward, backward, message


def table_length(schedule, ranks, micro_batches, chunks, forward, backward, message):
    """The length by the table, with the lists that ``played_length`` has."""
    lists = SCHEDULES[schedule].lists(ranks, micro_batches, chunks, stage_times(forward, backward, message))
    seconds = {
        "F": forward,
        "B": backward,
        "I": INPUT_SHARE * backward,
        "W": (1 - INPUT_SHARE) * backward,
    }
    ways = SCHEDULES[schedule].ways(ranks, chunks)
    return run(lists, lambda action: seconds[action.kind][action.stage], message, ways).latency


def stage_times(forward, backward, message):
    halves = INPUT_SHARE * backward, (1 - INPUT_SHARE) * backward
    return rounded_times(forward, *halves, message, 0.5)


def played_length(schedule, forward, backward, message, micro_batches, ranks):
    if not SCHEDULES[schedule].split:
        return played_seconds(schedule, forward, backward, message, micro_batches, ranks)
    times = [stage_times(f, b, m) for f, b, m in zip(forward, backward, message, strict=True)]
    halves = INPUT_SHARE * backward, (1 - INPUT_SHARE) * backward
    passes = Passes(forward, *halves, times if SCHEDULES[schedule].automatic else None)
    return played_span(schedule, passes, message, micro_batches, ranks).end.max(1)


def estimated_length(schedule, *arguments):
    return (pipeline_seconds if schedule in FORMS else played_length)(schedule, *arguments)


def as_arrays(forward, backward, message, micro_batches):
    return forward[None], backward[None], np.array([message]), np.array([micro_batches])


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(25))
def test_played_lists_equal_the_schedule_table(schedule, seed):
    rng = random.Random(seed)
    ranks, micro_batches, chunks = random_shape(schedule, rng)
    ranks = min(ranks, 8)
    micro_batches = ranks * rng.randint(1, 4) if chunks > 1 else rng.randint(1, 4 * ranks)
    assert periodic_micro_batches(micro_batches, ranks) == micro_batches
    forward, backward = (np.array([rng.uniform(0.2, 2) for _ in range(ranks * chunks)]) for _ in "FB")
    found = played_length(schedule, *as_arrays(forward, backward, 0.3, micro_batches), ranks)
    expected = table_length(schedule, ranks, micro_batches, chunks, forward, backward, 0.3)
    assert found[0] == pytest.approx(expected)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(10))
def test_long_schedules_are_extrapolated_from_their_periodic_regime(schedule, seed):
    rng = random.Random(1000 + seed)
    ranks, chunks = 4, 2 if SCHEDULES[schedule].chunked else 1
    micro_batches = ranks * rng.randint(10, 20)
    forward, backward, message = random_passes(ranks * chunks, rng, equal_layers=False)
    assert periodic_micro_batches(micro_batches, ranks) < micro_batches
    found = played_length(schedule, *as_arrays(forward, backward, message, micro_batches), ranks)
    expected = table_length(schedule, ranks, micro_batches, chunks, forward, backward, message)
    assert found[0] == pytest.approx(expected, rel=BOUND)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(40))
def test_a_pipeline_of_equal_layers_comes_within_the_bound(schedule, seed):
    rng = random.Random(seed)
    ranks, micro_batches, chunks = random_shape(schedule, rng)
    equal = SCHEDULES[schedule].chunked
    forward, backward, message = random_passes(ranks * chunks, rng, equal)
    found = estimated_length(schedule, *as_arrays(forward, backward, message, micro_batches), ranks)
    expected = table_length(schedule, ranks, micro_batches, chunks, forward, backward, message)
    assert found[0] == pytest.approx(expected, rel=BOUND)


@pytest.mark.parametrize("seed", range(30))
def test_interleaved_stages_that_differ_are_played_where_that_is_affordable(seed):
    rng = random.Random(seed)
    ranks, micro_batches, chunks = random_shape("interleaved-1f1b", rng)
    forward, backward, message = random_passes(ranks * chunks, rng, equal_layers=False)
    arguments = as_arrays(forward, backward, message, micro_batches)
    found = pipeline_seconds("interleaved-1f1b", *arguments, ranks)
    expected = table_length("interleaved-1f1b", ranks, micro_batches, chunks, forward, backward, message)
    actions = 2 * ranks * chunks * periodic_micro_batches(micro_batches, ranks)
    played = actions <= (PLAYED_UNEVEN_ACTIONS if len(set(forward[1:-1])) > 1 else PLAYED_ACTIONS)
    assert found[0] == pytest.approx(expected, rel=BOUND if played else UNEVEN_INTERLEAVED_BOUND)


@pytest.mark.parametrize("schedule", FORMS)
def test_many_plans_at_once_are_the_same_as_one_by_one(schedule):
    rng, chunks = random.Random(3), 2 if SCHEDULES[schedule].chunked else 1
    plans = [as_arrays(*random_passes(4 * chunks, rng, False), 4 * rng.randint(1, 40)) for _ in range(30)]
    together = pipeline_seconds(schedule, *(np.concatenate(column) for column in zip(*plans, strict=True)), 4)
    alone = [pipeline_seconds(schedule, *plan, 4)[0] for plan in plans]
    assert together == pytest.approx(np.array(alone))


@pytest.mark.parametrize("schedule", FORMS)
def test_a_pipeline_grows_with_messages_and_micro_batches(schedule):
    chunks = 2 if SCHEDULES[schedule].chunked else 1
    passes = np.ones((1, 4 * chunks)), 2 * np.ones((1, 4 * chunks))
    by_message = [
        float(FORMS[schedule](*passes, np.array([message]), np.array([8]), 4)[0])
        for message in (0, 0.1, 0.5, 2, 10)
    ]
    by_count = [
        float(FORMS[schedule](*passes, np.array([0.1]), np.array([count]), 4)[0]) for count in (4, 8, 16, 64)
    ]
    assert all(a < b for values in (by_message, by_count) for a, b in pairwise(values))


def peaks_of(schedule, ranks, micro_batches, kinds, sizes):
    """Peak of every rank when a stage of kind k keeps ``sizes[k]`` bytes until B or I, one less until W."""
    both = np.concatenate([sizes, sizes - 1])
    held = in_flight(schedule, ranks, micro_batches, tuple(kinds))
    return [(candidates @ both).max() for candidates in held]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("seed", range(15))
def test_counts_in_flight_give_the_peak_of_walking_the_list(schedule, seed):
    rng = random.Random(seed)
    ranks, micro_batches, chunks = random_shape(schedule, rng)
    kinds = [rng.randint(0, 2) for _ in range(ranks * chunks - 1)] + [2]
    sizes = np.array([rng.randint(1, 9) for _ in range(3)])
    peaks = peaks_of(schedule, ranks, micro_batches, kinds, sizes)
    for rank, actions in enumerate(SCHEDULES[schedule].lists(ranks, micro_batches, chunks)):
        held = peak = 0
        for action in actions:
            size = sizes[kinds[action.stage]]
            held += {"F": size, "B": -size, "I": -1, "W": 1 - size}[action.kind]
            peak = max(peak, held)
        assert held == 0
        assert peaks[rank] == peak


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("chunks", [2, 3, 4])
@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_as_many_micro_batches_as_suffice_show_the_same_peak_as_all(schedule, ranks, chunks):
    kind = SCHEDULES[schedule]
    if kind.fault(ranks, ranks):
        assert kind.rank_multiple > 1
        return
    stages = ranks * (kind.fixed_chunks or (chunks if kind.chunked else 1))
    kinds, sizes = range(stages), np.array([1 + (7 * stage) % 5 for stage in range(stages)])
    counts = np.array([ranks, 3 * ranks, 9 * ranks])
    enough = sufficient(schedule, ranks, counts)
    assert (enough <= counts).all()
    for few, every in zip(enough, counts, strict=True):
        assert peaks_of(schedule, ranks, int(few), kinds, sizes) == peaks_of(
            schedule, ranks, int(every), kinds, sizes
        )
