"""What lists of automatic schedules begin with, whatever the times of stages: never less than the bound."""

import random

import numpy as np
import pytest

from meshwright.cost.lower_bounds.automatic_schedule_memory import leading_forward_passes, min_passes_held
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.stage_times import rounded_times

RANKS = 4
CHOICES = [
    ScheduleChoice("zb-h1"),
    ScheduleChoice("zb-h2"),
    ScheduleChoice("zero-bubble", memory_limit=0.5),
    ScheduleChoice("zero-bubble", memory_limit=1.5),
    ScheduleChoice("zb-v"),
    ScheduleChoice("zb-v", memory_limit=0.75),
    ScheduleChoice("zb-v", memory_limit=2.0),
]


class Stages:
    """Times of one plan's stages, as a group of plans has them."""

    def __init__(self, choice, rng):
        self.ranks, self.chunks = RANKS, choice.kind.fixed_chunks or 1
        self.placement = choice.kind.placement(self.ranks, self.chunks)
        spread = rng.choice((0.02, 0.3, 0.8))
        passes = [
            [rng.uniform(1 - spread, 1 + spread) * mean for _ in self.placement]
            for mean in (1, rng.random() + 0.5, 1)
        ]
        self.forward_s, self.input_s, self.weight_s = (np.array([seconds]) for seconds in passes)
        self.message_s = np.array([rng.choice((0.0, 0.07, 0.6))])
        following = np.array([*self.placement[1:], self.placement[-1]])
        self.crosses = (following != np.array(self.placement)).astype(float)
        mine = [np.flatnonzero(np.array(self.placement) == rank) for rank in range(self.ranks)]
        self.stages_at = np.array(mine).T
        self.times = rounded_times(*passes, float(self.message_s[0]), rng.uniform(0.1, 1))


def most_of_first(actions, stage):
    waiting, most = 0, 0
    for action in actions:
        if action.stage == stage:
            waiting += {"F": 1, "I": -1}.get(action.kind, 0)
            most = max(most, waiting)
    return most


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("micro_batches", [3, 8, 20])
def test_no_list_holds_less(choice, micro_batches):
    rng, near = random.Random(f"{choice} {micro_batches}"), 0
    for _ in range(12):
        stages = Stages(choice, rng)
        limit = (choice.memory_limit or choice.kind.default_memory_limit) * RANKS * stages.chunks
        most = np.full((1, RANKS), min(limit, micro_batches * stages.chunks))
        least = min_passes_held(stages, leading_forward_passes(stages), np.array([micro_batches]), most)[0]
        lists = choice.lists(RANKS, micro_batches, stages.chunks, stages.times)
        found = [most_of_first(actions, stages.stages_at[0, rank]) for rank, actions in enumerate(lists)]
        assert all(bound <= held for bound, held in zip(least, found, strict=True))
        near += least[0] > 1
    assert near
