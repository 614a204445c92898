"""What a rank may hold at most bounds what its lists hold, whatever the times."""

import random

import pytest

from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.in_flight_bounds import in_flight_bounds
from meshwright.schedules.stage_times import rounded_times

CHOICES = [
    *map(ScheduleChoice, SCHEDULES),
    ScheduleChoice("zero-bubble", memory_limit=0.5),
    ScheduleChoice("zb-v", memory_limit=0.75),
    ScheduleChoice("interleaved-1f1b", unit=8),
    ScheduleChoice("looped-bfs", unit=4),
    ScheduleChoice("looped-bfs", unit=8),
    ScheduleChoice("zeropp", unit=8),
    ScheduleChoice("1f1b", in_flight=2),
    ScheduleChoice("interleaved-1f1b", in_flight=11),
    ScheduleChoice("looped-bfs", unit=8, in_flight=13),
]


def held(actions):
    waiting, most = 0, 0
    for action in actions:
        waiting += {"F": 1, "B": -1, "I": -1}.get(action.kind, 0)
        most = max(most, waiting)
    return most


def some_times(stages, rng):
    passes = [[rng.uniform(0.5, 2) for _ in range(stages)] for _ in "FIW"]
    return rounded_times(*passes, rng.choice((0, 0.1, 0.5)), rng.uniform(0.2, 1))


@pytest.mark.quick_cases(30)
@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("micro_batches", [8, 16, 48])
def test_no_list_holds_more(choice, micro_batches):
    rng, ranks = random.Random(micro_batches), 4
    chunks = choice.kind.fixed_chunks or (3 if choice.kind.chunked else 1)
    most = in_flight_bounds(choice, ranks, micro_batches, chunks)
    for _ in range(3):
        lists = choice.lists(ranks, micro_batches, chunks, some_times(ranks * chunks, rng))
        found = tuple(map(held, lists))
        assert all(a <= b for a, b in zip(found, most, strict=True))
        assert choice.kind.automatic or found == most
