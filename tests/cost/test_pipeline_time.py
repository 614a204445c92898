"""Pipelines: what is played equals the schedule table, closed forms come close, counts in flight are exact."""

import random
from itertools import pairwise

import numpy as np
import pytest

from meshwright.cost.memory.micro_batches_in_flight import in_flight, peak_passes_on_host, sufficient
from meshwright.cost.pipeline_time.gpipe_1f1b_interleaved import (
    FAR_FROM_EVEN,
    FORMS,
    PLAYED_ACTIONS,
    PLAYED_UNEVEN_ACTIONS,
    has_form,
    pipeline_seconds,
)
from meshwright.cost.pipeline_time.time_action_lists import (
    Passes,
    periodic_micro_batches,
    played_seconds,
    played_span,
)
from meshwright.plans.layers.layer_assignment import balanced_counts
from meshwright.schedules.activation_offload import OffloadedStages
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.stage_times import rounded_times
from meshwright.schedules.timeline import run

BOUND = 0.03
UNEVEN_INTERLEAVED_BOUND = 0.09


INPUT_SHARE = 0.6
TURNED = {
    "zero-bubble within half": lambda ranks: ScheduleChoice("zero-bubble", memory_limit=max(0.5, 1 / ranks)),
    "zero-bubble within more": lambda ranks: ScheduleChoice("zero-bubble", memory_limit=1.5),
    "zb-v within less": lambda ranks: ScheduleChoice("zb-v", memory_limit=max(0.75, 1 / ranks)),
    "interleaved-1f1b by two rounds": lambda ranks: ScheduleChoice("interleaved-1f1b", unit=2 * ranks),
    "looped-bfs by rounds": lambda ranks: ScheduleChoice("looped-bfs", unit=ranks),
    "1f1b with few": lambda ranks: ScheduleChoice("1f1b", in_flight=max(1, ranks // 2)),
    "interleaved-1f1b with few": lambda ranks: ScheduleChoice("interleaved-1f1b", in_flight=2 * ranks),
    "looped-bfs with few": lambda ranks: ScheduleChoice("looped-bfs", in_flight=2 * ranks),
    "zeropp by two rounds": lambda ranks: ScheduleChoice("zeropp", unit=2 * ranks),
}
"""Schedules with a knob turned, for a number of ranks."""
CASES = (*SCHEDULES, *TURNED)


def kind_of(case):
    return SCHEDULES[case.split()[0]]


def choice_of(case, ranks):
    return TURNED[case](ranks) if case in TURNED else ScheduleChoice(case)


def random_shape(case, rng):
    kind = kind_of(case)
    if kind.chunked:
        ranks, chunks = rng.choice((2, 4, 8, 16)), rng.choice((2, 3, 4))
        chunks = kind.fixed_chunks or chunks
        if case.endswith("two rounds"):
            return ranks, 2 * ranks * rng.randint(1, 5), chunks
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


def table_length(case, ranks, micro_batches, chunks, forward, backward, message):
    """The length by the table, with the lists that ``played_length`` has."""
    choice = choice_of(case, ranks)
    lists = choice.lists(ranks, micro_batches, chunks, stage_times(forward, backward, message))
    seconds = {
        "F": forward,
        "B": backward,
        "I": INPUT_SHARE * backward,
        "W": (1 - INPUT_SHARE) * backward,
    }
    ways = choice.kind.ways(ranks, chunks)
    return run(lists, lambda action: seconds[action.kind][action.stage], message, ways).latency


def stage_times(forward, backward, message):
    halves = INPUT_SHARE * backward, (1 - INPUT_SHARE) * backward
    return rounded_times(forward, *halves, message, 0.5)


def played_length(case, forward, backward, message, micro_batches, ranks):
    choice = choice_of(case, ranks)
    if not choice.kind.split:
        return played_seconds(choice, forward, backward, message, micro_batches, ranks)
    times = [stage_times(f, b, m) for f, b, m in zip(forward, backward, message, strict=True)]
    halves = INPUT_SHARE * backward, (1 - INPUT_SHARE) * backward
    passes = Passes(forward, *halves, times if choice.kind.automatic else None)
    return played_span(choice, passes, message, micro_batches, ranks).end.max(1)


def estimated_length(case, *arguments):
    choice = choice_of(case, arguments[-1])
    return pipeline_seconds(choice, *arguments) if has_form(choice) else played_length(case, *arguments)


def as_arrays(forward, backward, message, micro_batches):
    return forward[None], backward[None], np.array([message]), np.array([micro_batches])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("seed", range(25))
def test_played_lists_equal_the_schedule_table(case, seed):
    rng = random.Random(seed)
    ranks, micro_batches, chunks = random_shape(case, rng)
    ranks = min(ranks, 8)
    micro_batches = ranks * rng.randint(1, 4) if chunks > 1 else rng.randint(1, 4 * ranks)
    if case.endswith("two rounds"):
        micro_batches = 2 * ranks * rng.randint(1, 2)
    assert periodic_micro_batches(micro_batches, ranks) == micro_batches
    forward, backward = (np.array([rng.uniform(0.2, 2) for _ in range(ranks * chunks)]) for _ in "FB")
    found = played_length(case, *as_arrays(forward, backward, 0.3, micro_batches), ranks)
    expected = table_length(case, ranks, micro_batches, chunks, forward, backward, 0.3)
    assert found[0] == pytest.approx(expected)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(10))
def test_long_schedules_are_extrapolated_from_their_periodic_regime(case, seed):
    rng = random.Random(1000 + seed)
    ranks, chunks = 4, 2 if kind_of(case).chunked else 1
    micro_batches = ranks * rng.randint(10, 20)
    if case.endswith("two rounds"):
        micro_batches *= 2
    forward, backward, message = random_passes(ranks * chunks, rng, equal_layers=False)
    assert periodic_micro_batches(micro_batches, ranks) < micro_batches
    found = played_length(case, *as_arrays(forward, backward, message, micro_batches), ranks)
    expected = table_length(case, ranks, micro_batches, chunks, forward, backward, message)
    assert found[0] == pytest.approx(expected, rel=BOUND)


@pytest.mark.quick_cases(20)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(40))
def test_a_pipeline_of_equal_layers_comes_within_the_bound(case, seed):
    rng = random.Random(seed)
    ranks, micro_batches, chunks = random_shape(case, rng)
    equal = kind_of(case).chunked
    forward, backward, message = random_passes(ranks * chunks, rng, equal)
    found = estimated_length(case, *as_arrays(forward, backward, message, micro_batches), ranks)
    expected = table_length(case, ranks, micro_batches, chunks, forward, backward, message)
    assert found[0] == pytest.approx(expected, rel=BOUND)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("seed", range(30))
def test_interleaved_stages_that_differ_are_played_where_that_is_affordable(seed):
    rng = random.Random(seed)
    ranks, micro_batches, chunks = random_shape("interleaved-1f1b", rng)
    forward, backward, message = random_passes(ranks * chunks, rng, equal_layers=False)
    arguments = as_arrays(forward, backward, message, micro_batches)
    found = pipeline_seconds(ScheduleChoice("interleaved-1f1b"), *arguments, ranks)
    expected = table_length("interleaved-1f1b", ranks, micro_batches, chunks, forward, backward, message)
    actions = 2 * ranks * chunks * periodic_micro_batches(micro_batches, ranks)
    middle = forward[1:-1]
    played = max(middle) > (1 + FAR_FROM_EVEN) * min(middle) or actions <= (
        PLAYED_UNEVEN_ACTIONS if len(set(forward[1:-1])) > 1 else PLAYED_ACTIONS
    )
    assert found[0] == pytest.approx(expected, rel=BOUND if played else UNEVEN_INTERLEAVED_BOUND)


def test_interleaved_stages_of_one_or_two_layers_are_always_played():
    """126 layers on 96 stages of 32 ranks: too many passes for other uneven stages to be played."""
    ranks, chunks, micro_batches = 32, 3, 64
    forward = np.array(balanced_counts(126, ranks * chunks), dtype=float)
    backward, message = 2 * forward, 0.05
    arguments = as_arrays(forward, backward, message, micro_batches)
    assert 2 * ranks * chunks * periodic_micro_batches(micro_batches, ranks) > PLAYED_UNEVEN_ACTIONS
    found = pipeline_seconds(ScheduleChoice("interleaved-1f1b"), *arguments, ranks)
    expected = table_length("interleaved-1f1b", ranks, micro_batches, chunks, forward, backward, message)
    assert found[0] == pytest.approx(expected, rel=BOUND)
    assert FORMS["interleaved-1f1b"](*arguments, ranks)[0] < 0.9 * expected


@pytest.mark.parametrize("schedule", FORMS)
def test_many_plans_at_once_are_the_same_as_one_by_one(schedule):
    rng, chunks = random.Random(3), 2 if SCHEDULES[schedule].chunked else 1
    plans = [as_arrays(*random_passes(4 * chunks, rng, False), 4 * rng.randint(1, 40)) for _ in range(30)]
    choice, columns = ScheduleChoice(schedule), zip(*plans, strict=True)
    together = pipeline_seconds(choice, *(np.concatenate(column) for column in columns), 4)
    alone = [pipeline_seconds(choice, *plan, 4)[0] for plan in plans]
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


def peaks_of(choice, ranks, micro_batches, kinds, sizes, copied=None):
    """Peak of every rank when a stage of kind k keeps ``sizes[k]`` bytes until B or I, one less until W.

    With copies two thirds of it are on the host for a while.
    """
    each = [sizes, sizes - 1, *([-(2 * sizes) // 3] if copied else [])]
    held = in_flight(choice, ranks, micro_batches, tuple(kinds), None, copied)
    return [(candidates @ np.concatenate(each)).max() for candidates in held]


def on_hosts_of(choice, ranks, micro_batches, kinds, sizes, copied):
    """What every rank has on its host at most."""
    held = peak_passes_on_host(choice, ranks, micro_batches, tuple(kinds), None, copied)
    return [(candidates @ sizes).max() for candidates in held]


@pytest.mark.quick_cases(10)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(15))
def test_counts_in_flight_give_the_peak_of_walking_the_list(case, seed):
    rng = random.Random(seed)
    ranks, micro_batches, chunks = random_shape(case, rng)
    choice = choice_of(case, ranks)
    kinds = [rng.randint(0, 2) for _ in range(ranks * chunks - 1)] + [2]
    sizes = np.array([rng.randint(1, 9) for _ in range(3)])
    peaks = peaks_of(choice, ranks, micro_batches, kinds, sizes)
    for rank, actions in enumerate(choice.lists(ranks, micro_batches, chunks)):
        held = peak = 0
        for action in actions:
            size = sizes[kinds[action.stage]]
            held += {"F": size, "B": -size, "I": -1, "W": 1 - size}[action.kind]
            peak = max(peak, held)
        assert held == 0
        assert peaks[rank] == peak


@pytest.mark.quick_cases(12)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("chunks", [2, 3, 4])
@pytest.mark.parametrize("ranks", [2, 3, 4, pytest.param(8, marks=pytest.mark.slow)])
def test_as_many_micro_batches_as_suffice_show_the_same_peak_as_all(case, ranks, chunks):
    kind, choice = kind_of(case), choice_of(case, ranks)
    if kind.fault(ranks, ranks):
        assert kind.rank_multiple > 1
        return
    stages = ranks * (kind.fixed_chunks or (chunks if kind.chunked else 1))
    kinds, sizes = range(stages), np.array([1 + (7 * stage) % 5 for stage in range(stages)])
    counts = choice.period(ranks) * np.array([1, 3, 9])
    for ahead in (1, 2, 5):
        copied = OffloadedStages(frozenset(kinds), ahead)
        most = choice.period(ranks) * 12
        few = int(sufficient(choice, ranks, np.array([most]), copied)[0])
        for peaks in (peaks_of, on_hosts_of):
            assert peaks(choice, ranks, few, kinds, sizes, copied) == peaks(
                choice, ranks, most, kinds, sizes, copied
            )
    enough = sufficient(choice, ranks, counts)
    assert (enough <= counts).all()
    for few, every in zip(enough, counts, strict=True):
        assert peaks_of(choice, ranks, int(few), kinds, sizes) == peaks_of(
            choice, ranks, int(every), kinds, sizes
        )
