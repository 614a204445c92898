from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from meshwright.play.execution_order import DeadlockError
from meshwright.schedules.action import Action, parse_actions
from meshwright.schedules.dependencies import StageChains, dependency_key, sources
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.timeline import run

# p, m, (F, B, W, message), lower bound (m+p−1)·ΣT + 2(p−1)·c; times of Qi et al. (arXiv 2401.10241)
BOUNDS = [
    (4, 8, ("1", "1", "1", "0"), "33"),
    (4, 12, ("1", "1", "1", "0"), "45"),
    (8, 24, ("1", "1", "1", "0"), "93"),
    (8, 32, ("1", "1", "1", "0"), "117"),
    (8, 64, ("1", "1", "1", "0"), "213"),
    (16, 48, ("1", "1", "1", "0"), "189"),
    (4, 8, ("1", "1", "1", "0.1"), "33.6"),
    (8, 24, ("1", "1", "1", "0.1"), "94.4"),
    (16, 64, ("1", "1", "1", "0.1"), "240"),
    (8, 24, ("18.522", "18.086", "9.337", "0.601"), "1432.709"),
    (8, 32, ("18.522", "18.086", "9.337", "0.601"), "1800.269"),
    (8, 64, ("18.522", "18.086", "9.337", "0.601"), "3270.509"),
]


def durations(forward, backward):
    return lambda action: forward if action.kind == "F" else backward


@pytest.mark.parametrize(("p", "m", "times", "bound"), BOUNDS)
def test_1f1b_is_no_shorter_than_its_bound_and_equal_to_it_without_messages(p, m, times, bound):
    forward, half, weight, comm = map(Fraction, times)
    lists = SCHEDULES["1f1b"].lists(p, m, 1)
    makespan = run(lists, durations(forward, half + weight), comm).makespan
    assert (m + p - 1) * (forward + half + weight) + 2 * (p - 1) * comm == Fraction(bound)
    if comm:
        assert makespan > Fraction(bound)
    else:
        assert makespan == Fraction(bound)


def test_bubble_of_1f1b_with_messages_as_published():
    """Qi et al. (arXiv 2401.10241) give 0.2431 = 1 − ideal/makespan for this profile; the bound alone gives 0.2303."""
    lists = SCHEDULES["1f1b"].lists(8, 24, 1)
    makespan = run(lists, durations(18.522, 18.086 + 9.337), 0.601).makespan
    assert round(1 - 24 * (18.522 + 18.086 + 9.337) / makespan, 4) == 0.2431


def test_makespan_is_the_longest_rank_and_latency_the_whole():
    """Rank 1 begins 3 later than rank 0 and works on after it."""
    timeline = run([parse_actions("0F0"), parse_actions("1F0")], lambda a: 3 if a.stage == 0 else 5)
    assert timeline.start == ((0.0,), (3,))
    assert timeline.end == ((3.0,), (8,))
    assert timeline.makespan == 5
    assert timeline.latency == 8


def test_messages_take_time_between_ranks_only():
    lists = [parse_actions("0F0 1F0 1B0 0B0")]
    assert run(lists, lambda _: 1, comm=10).makespan == 4
    lists = [parse_actions("0F0 0B0"), parse_actions("1F0 1B0")]
    assert run(lists, lambda _: 1, comm=10).makespan == 24


def test_split_backward_passes_let_gradients_travel_earlier():
    whole = [parse_actions("0F0 0B0"), parse_actions("1F0 1B0")]
    split = [parse_actions("0F0 0I0 0W0"), parse_actions("1F0 1I0 1W0")]
    times = {"F": 1, "B": 2, "I": 1, "W": 1}
    assert run(whole, lambda a: times[a.kind]).makespan == 6
    assert run(split, lambda a: times[a.kind]).makespan == 5


def test_a_weight_gradient_waits_for_its_input_gradient():
    with pytest.raises(DeadlockError) as error:
        run([parse_actions("0F0 0W0 0I0")], lambda _: 1)
    assert error.value.waiting == (Action("W", 0, 0),)


@pytest.mark.parametrize(
    ("lists", "waiting"),
    [
        (["0B0 0F0", "1F0 1B0"], ["0B0", "1F0"]),
        (["0F0 0B1 0B0 0F1", "1F0 1B0 1F1 1B1"], ["0B1", "1F1"]),
        (["0F0"], None),
    ],
)
def test_lists_that_wait_for_each_other_are_named(lists, waiting):
    parsed = [parse_actions(text) for text in lists]
    if waiting is None:
        assert run(parsed, lambda _: 1).makespan == 1
        return
    with pytest.raises(DeadlockError) as error:
        run(parsed, lambda _: 1)
    assert [str(action) for action in error.value.waiting] == waiting
    assert waiting[0] in str(error.value)


@pytest.mark.parametrize(
    ("text", "ways", "needed"),
    [
        ("0F3", StageChains(4), ()),
        ("2F3", StageChains(4), (("F", 1, 3),)),
        ("2F3", StageChains(4, chains=2), ()),
        ("2B3", StageChains(4), (("B", 3, 3),)),
        ("2I3", StageChains(4), (("B", 3, 3),)),
        ("3B3", StageChains(4), (("F", 3, 3),)),
        ("1B3", StageChains(4, chains=2), (("F", 1, 3),)),
        ("2W3", StageChains(4), (("B", 2, 3),)),
    ],
)
def test_what_an_action_needs(text, ways, needed):
    (action,) = parse_actions(text)
    assert sources(action, ways) == needed


@given(
    st.sampled_from(sorted(SCHEDULES)),
    st.integers(1, 5),
    st.integers(1, 3),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(0, 9),
)
@settings(max_examples=80, deadline=None)
def test_laws_of_any_timeline(name, p, rounds, forward, backward, comm):
    """Order on a rank, data before use, no idle start of the first rank, never less than a rank's work."""
    kind = SCHEDULES[name]
    assume(kind.fault(p, rounds * p) is None)
    v = 2 if kind.allows(2) else 1
    seconds = {"F": forward, "B": backward, "I": backward, "W": (forward + backward) / 2}
    lists, ways = kind.lists(p, rounds * p, v), kind.ways(p, v)
    timeline = run(lists, lambda action: seconds[action.kind], comm, ways)
    done = {}
    for rank, actions in enumerate(lists):
        for action, end in zip(actions, timeline.end[rank], strict=True):
            done[dependency_key(action)] = (end, rank)
    for rank, actions in enumerate(lists):
        clock = 0
        for action, start, end in zip(actions, timeline.start[rank], timeline.end[rank], strict=True):
            assert end == start + seconds[action.kind]
            needed = [done[key] for key in sources(action, ways)]
            assert start == max([clock, *(end + (comm if where != rank else 0) for end, where in needed)])
            clock = end
    of_stage = sum(seconds[k] for k in ("F", "I", "W") if kind.split) or forward + backward
    work = rounds * p * v * of_stage / kind.chains
    assert timeline.latency >= timeline.makespan >= work
