"""Pipelines without backward passes: the closed form, and lists played action by action."""

import random

import numpy as np
import pytest

from meshwright.cost.pipeline_time.forward_only_pipeline import forward_only_seconds
from meshwright.schedules.forward_only_lists import forward_only_lists, is_second_half


def played(lists, forward, message, pause):
    """The end of the last action; a pass waits for the one before it on its rank, and for its message."""
    ended: dict[tuple[int, int], float] = {}
    last = []
    for rank, actions in enumerate(lists):
        clock = 0.0
        for action in actions:
            if action.kind == "PERTURB":
                clock += pause[rank]
                continue
            arrival = ended[rank - 1, action.micro_batch] + message if rank else 0.0
            clock = ended[rank, action.micro_batch] = max(clock, arrival) + forward[rank]
        last.append(clock)
    return max(last)


@pytest.mark.parametrize("split", [False, True], ids=["both", "split"])
@pytest.mark.parametrize("seed", range(40))
def test_the_closed_form_is_exact(seed, split):
    draw = random.Random(seed)
    ranks, count = draw.randint(1, 7), draw.choice((2, 4, 6, 14))
    forward = [draw.uniform(0.5, 2) for _ in range(ranks)]
    pause = [draw.choice((0.0, draw.uniform(0, 5))) for _ in range(ranks)]
    message = draw.choice((0.0, 0.3))
    found = forward_only_seconds(
        np.array([forward]), np.array([message]), np.array([pause]), np.array([count]), split=split
    )
    lists = forward_only_lists(ranks, count, split=split)
    assert found[0] == pytest.approx(played(lists, forward, message, pause), rel=1e-12)


def test_equal_stages_fill_the_pipeline_once():
    ranks, count = 4, 10
    ones = np.ones((1, ranks))
    found = forward_only_seconds(ones, np.zeros(1), 0 * ones, np.array([count]), split=False)
    assert found[0] == count + ranks - 1


@pytest.mark.parametrize("split", [False, True], ids=["both", "split"])
def test_lists_have_every_pass_once_and_two_perturbations(split):
    for rank, actions in enumerate(forward_only_lists(3, 4, split=split)):
        words = " ".join(map(str, actions))
        passes = [f"{rank}F{m}" for m in range(4)]
        turn = 4 if split else 2
        assert words.split() == ["PERTURB", *passes[:turn], "PERTURB", *passes[turn:]]


def test_halves_of_replicas():
    assert [is_second_half(replica, 4) for replica in range(4)] == [False, False, True, True]
