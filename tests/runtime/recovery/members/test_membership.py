"""Who goes on after members were lost: complete replicas, and whose states are the newest."""

import pytest

from meshwright.runtime.recovery.members.membership import (
    Candidate,
    Place,
    Source,
    complete_replicas,
    source_of,
    up_to_date,
)


def candidates(size, steps, lost=()):
    """Members of replicas of ``size`` ranks with ``steps`` each, without those that are ``lost``."""
    return [
        Candidate(member=number, place=Place(number // size, number % size), step=step)
        for number, step in enumerate(steps)
        if number not in lost
    ]


def members(replicas):
    return [tuple(one.member for one in row) for row in replicas]


def test_replicas_without_a_lost_member_stay_as_they_are():
    found = complete_replicas(candidates(2, [4] * 8, lost=[3]), 2, islands=False)
    assert members(found) == [(0, 1), (4, 5), (6, 7)]


def test_members_of_broken_replicas_complete_one_another():
    found = complete_replicas(candidates(2, [4] * 8, lost=[1, 2]), 2, islands=False)
    assert members(found) == [(4, 5), (6, 7), (0, 3)]
    assert members(complete_replicas(candidates(2, [4] * 8, lost=[1, 3]), 2, islands=False)) == [
        (4, 5),
        (6, 7),
    ]


def test_islands_are_complete_by_themselves_only():
    found = complete_replicas(candidates(2, [4] * 8, lost=[1, 2]), 2, islands=True)
    assert members(found) == [(4, 5), (6, 7)]


def test_no_replica_is_left_where_one_position_is_gone():
    assert not complete_replicas(candidates(2, [4] * 4, lost=[0, 2]), 2, islands=False)


@pytest.mark.parametrize(
    ("steps", "islands", "source", "own"),
    [
        ([5, 5, 5, 5], False, Source(5, (0, 0)), {0, 1, 2, 3}),
        ([5, 5, 6, 6], False, Source(6, (1, 1)), {2, 3}),
        ([6, 5, 5, 6], False, Source(6, (0, 1)), {0, 3}),
        ([6, 5, 5, 6], True, None, None),
        ([6, 5, None, 5], False, Source(5, (0, 0)), None),
        ([None, 5, 5, None], False, Source(5, (1, 0)), {1, 2}),
        ([None, 5, None, 5], False, None, None),
        ([5, 5, 6, 5], True, Source(5, (0, 0)), {0, 1}),
    ],
)
def test_the_newest_states_that_are_whole_at_every_position(steps, islands, source, own):
    replicas = complete_replicas(candidates(2, steps), 2, islands=islands)
    if steps == [6, 5, None, 5]:
        source = None  # nobody has step 5 at the first position
    found = source_of(replicas, islands=islands)
    assert found == source
    if found and own:
        assert up_to_date(replicas, found, islands=islands) == own
