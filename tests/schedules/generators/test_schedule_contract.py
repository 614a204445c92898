"""The contract of every schedule in the table, and the closed forms of the three known ones."""

from collections import Counter
from fractions import Fraction
from itertools import product

import pytest

from meshwright.schedules.action import COMPUTE_KINDS, Action, format_actions
from meshwright.schedules.custom.check_lists import check_lists
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import Knobs, looped_placement, v_placement
from meshwright.schedules.timeline import run

RANKS, MICRO_BATCHES, CHUNKS = (1, 2, 3, 4, 8), (1, 2, 3, 4, 6, 8, 12, 16, 24), (1, 2, 3, 4)
CASES = [
    (name, p, m, v)
    for name, kind in SCHEDULES.items()
    for p in RANKS
    for m in MICRO_BATCHES
    for v in CHUNKS
    if kind.allows(v) and kind.fault(p, m) is None
]
BACKWARD = {"B": 2, "I": 1, "W": 1}


def unit(chunks: int):
    """A micro-batch's F of a whole rank takes 1, B takes 2; a chunk 1/V of it."""
    return lambda action: Fraction(1 if action.kind == "F" else BACKWARD[action.kind], chunks)


def generated(name, p, m, v):
    return SCHEDULES[name].lists(p, m, v)


def played(name, p, m, v):
    return run(generated(name, p, m, v), unit(v), ways=SCHEDULES[name].ways(p, v))


def of_stage(name, p, m, v, stage):
    """The micro-batches that go through a stage: each way through the model has its share of them."""
    ways = SCHEDULES[name].ways(p, v)
    way, share = stage // ways.length, m // ways.chains
    return range(way * share, (way + 1) * share)


def peak(actions) -> int:
    held = [0]
    for action in actions:
        held.append(held[-1] + {"F": 1, "B": -1, "W": -1}.get(action.kind, 0))
    assert held[-1] == 0
    return max(held)


def test_every_name_of_the_plan_language_has_an_entry_that_says_what_it_is():
    names = "gpipe 1f1b interleaved-1f1b looped-bfs zb-h1 zb-h2 zero-bubble zb-v v-half v-min dualpipe dualpipev zeropp"
    assert list(SCHEDULES) == names.split()
    assert all(kind.summary for kind in SCHEDULES.values())


@pytest.mark.parametrize("name", SCHEDULES)
def test_every_schedule_is_tried(name):
    assert sum(case[0] == name for case in CASES) >= 20


@pytest.mark.quick_cases(120)
@pytest.mark.parametrize(("name", "p", "m", "v"), CASES)
def test_every_micro_batch_passes_every_stage_once_and_forward_first(name, p, m, v):
    lists = generated(name, p, m, v)
    placement = SCHEDULES[name].placement(p, v)
    assert len(lists) == p
    for rank, actions in enumerate(lists):
        seen = Counter(actions)
        assert set(seen.values()) <= {1}
        assert {a.kind for a in actions} <= set(COMPUTE_KINDS)
        assert all(placement[a.stage] == rank for a in actions)
        at = {action: i for i, action in enumerate(actions)}
        expected = 0
        mine = [s for s in range(p * v) if placement[s] == rank]
        for stage, i in ((s, i) for s in mine for i in of_stage(name, p, m, v, s)):
            forward, whole, half, weight = (Action(kind, stage, i) for kind in COMPUTE_KINDS)
            backward = [a for a in (whole, half, weight) if a in at]
            assert backward in ([whole], [half, weight])
            assert at[forward] < at[backward[0]] <= at[backward[-1]]
            expected += 1 + len(backward)
        assert len(actions) == expected


@pytest.mark.quick_cases(120)
@pytest.mark.parametrize(("name", "p", "m", "v"), CASES)
def test_the_lists_finish_and_hold_what_is_declared(name, p, m, v):
    lists = generated(name, p, m, v)
    timeline = played(name, p, m, v)
    assert [len(ends) for ends in timeline.end] == [len(actions) for actions in lists]
    bound = SCHEDULES[name].in_flight
    if bound is not None:
        assert [peak(actions) for actions in lists] == [bound(rank, p, m, v) for rank in range(p)]


@pytest.mark.quick_cases(260)
@pytest.mark.parametrize(("name", "p", "m", "v"), CASES)
def test_the_peak_is_that_of_the_steady_rounds(name, p, m, v):
    """What cost/ relies on: after ``steady_rounds`` rounds of P micro-batches nothing more is held."""
    rounds = SCHEDULES[name].steady_rounds
    if SCHEDULES[name].automatic:
        assert rounds is None
        return
    if rounds is None:
        assert [peak(actions) for actions in generated(name, p, m, v)] == [m * v] * p
        return
    few = generated(name, p, min(m, rounds * p), v)
    assert [peak(a) for a in few] == [peak(a) for a in generated(name, p, m, v)]


@pytest.mark.quick_cases(120)
@pytest.mark.parametrize(("name", "p", "m", "v"), CASES)
def test_lists_are_good_with_every_knob_that_they_look_at(name, p, m, v):
    """Each knob has a value on either side of the usual one; a rank holds a micro-batch at least."""
    kind, limits, sizes = SCHEDULES[name], (None,), (None,)
    if "memory_limit" in kind.depends_on:
        limits = (None, 2.0, p, 4.0 * p)
    if "unit" in kind.depends_on:
        sizes = (None, p, p + 1, 2 * p, m)
    for limit, size in product(limits, sizes):
        knobs = Knobs(memory_limit=limit, unit=size)
        if kind.fault(p, m, knobs) is None:
            lists = kind.lists(p, m, v, knobs=knobs)
            most = None if "memory_limit" not in kind.depends_on else max(2.0, limit or 2 * p)
            assert check_lists(lists, memory_limit=most) == []


@pytest.mark.parametrize(("p", "m"), [(p, m) for p in RANKS for m in MICRO_BATCHES])
def test_in_flight_of_the_plain_schedules(p, m):
    """GPipe holds all, 1F1B min(M, P−r)."""
    assert [peak(a) for a in generated("gpipe", p, m, 1)] == [m] * p
    assert [peak(a) for a in generated("1f1b", p, m, 1)] == [min(m, p - rank) for rank in range(p)]


@pytest.mark.parametrize(
    ("p", "rounds", "v"), [(p, n, v) for p in (2, 3, 4, 8) for n in (1, 2, 3, 4) for v in (2, 3, 4)]
)
def test_in_flight_of_interleaved(p, rounds, v):
    """The warm-up 2(P−1−r) + (V−1)P and one more chunk pass, if there are so many."""
    m = rounds * p
    warm_up = [min(m * v, 2 * (p - 1 - rank) + (v - 1) * p) for rank in range(p)]
    lists = generated("interleaved-1f1b", p, m, v)
    first_backward = [next(i for i, a in enumerate(actions) if a.kind == "B") for actions in lists]
    assert first_backward == [min(w + 1, m * v) for w in warm_up]
    assert [peak(a) for a in lists] == [min(w + 1, m * v) for w in warm_up]


@pytest.mark.parametrize(("p", "m"), [(p, m) for p in RANKS for m in MICRO_BATCHES if m >= p])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_bubble_of_gpipe_and_1f1b(name, p, m):
    """(P−1)/(M+P−1) of the time, exactly (Megatron-LM, arXiv 2104.04473, section 2.2)."""
    makespan = run(generated(name, p, m, 1), unit(1)).makespan
    assert 1 - 3 * m / makespan == Fraction(p - 1, m + p - 1)


@pytest.mark.parametrize(
    ("p", "rounds", "v"), [(p, n, v) for p in (2, 3, 4, 8) for n in (1, 2, 3, 4) for v in (2, 3, 4)]
)
def test_bubble_of_interleaved(p, rounds, v):
    """(P−1)/(V·M) of the ideal time, exactly."""
    m = rounds * p
    makespan = run(generated("interleaved-1f1b", p, m, v), unit(v)).makespan
    assert makespan / (3 * m) - 1 == Fraction(p - 1, v * m)


def test_lists_of_two_small_cases():
    assert [format_actions(a) for a in generated("1f1b", 3, 3, 1)] == [
        "0F0 0F1 0F2 0B0 0B1 0B2",
        "1F0 1F1 1B0 1F2 1B1 1B2",
        "2F0 2B0 2F1 2B1 2F2 2B2",
    ]
    assert [format_actions(a) for a in generated("interleaved-1f1b", 2, 2, 2)] == [
        "0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1",
        "1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1",
    ]


def test_placements():
    assert looped_placement(3, 2) == (0, 1, 2, 0, 1, 2)
    assert v_placement(3, 2) == (0, 1, 2, 2, 1, 0)
    assert v_placement(2, 3) == (0, 1, 1, 0, 0, 1)
