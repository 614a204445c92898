"""A vocabulary spread over the ranks, in the lists of every schedule: what the lists keep, hold and take."""

from collections import Counter
from itertools import product
from random import Random

import pytest
from compare_placements import most_waiting, stage_times
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.errors import UnsupportedError
from meshwright.play.execution_order import DeadlockError
from meshwright.play.in_flight import most_in_flight
from meshwright.schedules.action import Action, format_actions, parse_actions
from meshwright.schedules.dependencies import StageChains, dependency_key, sources
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.pipeline import Pipeline, looped_placement
from meshwright.schedules.stage_times import StageTimes, equal_times
from meshwright.schedules.timeline import run
from meshwright.schedules.vocabulary import FORMS
from meshwright.schedules.vocabulary.delayed_backward import delayed
from meshwright.schedules.vocabulary.pass_times import PassTimes, ShareTimes, durations

ONE_WAY = sorted(name for name, kind in SCHEDULES.items() if kind.chains == 1)
BESIDE = ("vocab-1", "vocab-2")
LAYER = PassTimes(1, 1, 1)


def spread(form, lists, times, share, placement, late=1):
    """Lists with S and T, and their ways."""
    ranks, stages = len(lists), len(placement)
    micro_batches = sum(a.kind == "F" for actions in lists for a in actions) // stages
    pipeline = Pipeline(ranks=ranks, micro_batches=micro_batches, placement=tuple(placement), times=times)
    made = FORMS[form].lists(lists, pipeline, StageChains(stages), share, late)
    return made, FORMS[form].ways(StageChains(stages), ranks)


def usual(form, name, ranks, micro_batches, head, message=0.0, late=1):
    """A schedule of stages of one layer with a head of so many layers: lists, ways, timeline."""
    kind = SCHEDULES[name]
    chunks = 2 if kind.allows(2) else 1
    times = stage_times([1] * ranks * chunks, LAYER, None, message)
    share = FORMS[form].share(PassTimes(head, head, head), ranks)
    lists = kind.lists(ranks, micro_batches, chunks, times)
    made, ways = spread(form, lists, times, share, kind.placement(ranks, chunks), late)
    return made, ways, run(made, durations(times, share), message, ways)


def assert_legal(made, ways, lists):
    """Every rank's own passes once, its F and its other passes in their order, S and T once and in one order."""
    everywhere = []
    for rank, (actions, own) in enumerate(zip(made, lists, strict=True)):
        shares = [a for a in actions if a.kind in ("S", "T")]
        assert {a.stage for a in shares} == {ways.stages + rank}
        everywhere.append([(a.kind, a.micro_batch) for a in sorted(shares, key=lambda a: a.kind)])
        for forward in (True, False):
            kept = [a for a in actions if a.kind not in ("S", "T") and (a.kind == "F") == forward]
            assert kept == [a for a in own if (a.kind == "F") == forward]
    assert all(of_rank == everywhere[0] for of_rank in everywhere)
    expected = {(kind, a.micro_batch): 1 for a in lists[0] if a.kind == "F" for kind in ("S", "T")}
    assert Counter(everywhere[0]) == expected


seconds = st.floats(0.1, 5)


@pytest.mark.parametrize(("name", "form"), list(product(ONE_WAY, BESIDE)))
@given(st.integers(1, 5), st.integers(1, 4), st.tuples(*[seconds] * 5), st.floats(0, 1), st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_every_schedule_keeps_its_passes_and_holds_one_micro_batch_more_for_each_barrier(
    name, form, ranks, rounds, times, message, late
):
    kind = SCHEDULES[name]
    chunks = next(v for v in (1, 2, 3) if kind.allows(v))
    micro_batches = rounds * kind.micro_batch_multiple(ranks)
    forward, input_, weight, s, t = times
    stages = StageTimes(*((x,) * ranks * chunks for x in (forward, input_, weight)), message)
    lists = kind.lists(ranks, micro_batches, chunks, stages)
    placement = kind.placement(ranks, chunks)
    made, ways = spread(form, lists, stages, ShareTimes(s, t), placement, late)
    assert_legal(made, ways, lists)
    run(made, durations(stages, ShareTimes(s, t)), message, ways)
    for actions, own in zip(made, lists, strict=True):
        assert most_in_flight(actions) <= most_in_flight(own) + FORMS[form].barriers * chunks


def played_at_random(random, ranks, chunks, micro_batches):
    """A legal schedule in which ranks take micro-batches in orders of their own, and its placement."""
    placement = [stage % ranks for stage in range(ranks * chunks)]
    random.shuffle(placement)
    ways, done, lists = StageChains(len(placement)), set(), [[] for _ in range(ranks)]
    left = [Action(k, s, m) for k, s, m in product("FB", range(len(placement)), range(micro_batches))]
    while left:
        ready = [a for a in left if done.issuperset((*sources(a, ways), *_own_forward(a)))]
        action = random.choice(ready)
        left.remove(action)
        done.add(dependency_key(action))
        lists[placement[action.stage]].append(action)
    return lists, placement


def _own_forward(action):
    return [("F", action.stage, action.micro_batch)] if action.kind == "B" else []


@given(st.randoms(use_true_random=False), st.integers(1, 4), st.integers(1, 2), st.integers(1, 5))
@settings(max_examples=60, deadline=None)
def test_any_lists_that_do_not_wait_for_each_other_stay_so(random, ranks, chunks, micro_batches):
    lists, placement = played_at_random(random, ranks, chunks, micro_batches)
    times = stage_times([1] * len(placement), LAYER, None, random.choice((0.0, 0.3)))
    share = ShareTimes(random.choice((0.1, 1.0)), random.choice((0.1, 1.0)))
    for form in BESIDE:
        made, ways = spread(form, lists, times, share, placement)
        assert_legal(made, ways, lists)
        run(made, durations(times, share), times.message, ways)


def test_backward_passes_leave_their_delayed_places_where_ranks_would_wait_for_each_other():
    """Of 200 such schedules some can not be delayed as they are."""
    stuck = 0
    for seed in range(200):
        lists, placement = played_at_random(Random(seed), 3, 1, 4)
        times, ways = stage_times([1] * 3, LAYER), StageChains(3)
        try:
            run(delayed(lists, 2), durations(times), 0, ways)
        except DeadlockError:
            stuck += 1
            made, more = spread("vocab-1", lists, times, ShareTimes(0.1, 0.1), placement)
            run(made, durations(times, ShareTimes(0.1, 0.1)), 0, more)
    assert stuck > 0


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize(("ranks", "head"), list(product((3, 4, 8, 16), (0.2, 1, 2))))
def test_1f1b_holds_as_many_micro_batches_more_as_there_are_barriers(ranks, head):
    """P + 2, P + 1 and 1.5·P on the first rank, as the authors' table of schedules has it; with P = 2 fewer will do."""
    for form, first in (("vocab-1", ranks + 2), ("vocab-2", ranks + 1), ("interlaced", 3 * ranks // 2)):
        lists, *_ = usual(form, "1f1b", ranks, 4 * ranks, head)
        assert most_in_flight(lists[0]) == first == max(map(most_in_flight, lists))


@pytest.mark.parametrize(("ranks", "form"), list(product((1, 2, 3, 4, 8), FORMS)))
@pytest.mark.parametrize("head", [0.3, 2, 6])
def test_1f1b_keeps_its_bubble_whatever_the_vocabulary(ranks, form, head):
    """(P − 1)(F + B), with nothing of S and T in it."""
    for micro_batches in (4 * ranks, 8 * ranks):
        *_, timeline = usual(form, "1f1b", ranks, micro_batches, head)
        busy = micro_batches * (3 + 3 * head / ranks)
        assert timeline.makespan == pytest.approx(busy + 3 * (ranks - 1))


def bubble(name, ranks, micro_batches, form=None, head=1.0):
    """What a schedule takes beyond the work of a rank; the vocabulary is nowhere if no form is said."""
    kind = SCHEDULES[name]
    chunks = 2 if kind.allows(2) else 1
    if form:
        *_, timeline = usual(form, name, ranks, micro_batches, head)
        return timeline.makespan - micro_batches * 3 * (chunks + head / ranks)
    without = run(kind.lists(ranks, micro_batches, chunks), lambda a: 2 if a.kind == "B" else 1)
    return without.makespan - micro_batches * 3 * chunks


@pytest.mark.quick_cases(24)
@pytest.mark.parametrize(("name", "form"), list(product(ONE_WAY, BESIDE)))
@pytest.mark.parametrize("head", [0.5, 2])
def test_every_schedule_keeps_about_its_bubble(name, form, head):
    """Lists that are not made for times keep it to the last; others lose at most a pass for each barrier."""
    more = bubble(name, 8, 32, form, head) - bubble(name, 8, 32)
    if not SCHEDULES[name].automatic:
        assert more == pytest.approx(0)
    assert more <= FORMS[form].barriers


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(("ranks", "micro_batches"), [(4, 16), (8, 64), (16, 64)])
@pytest.mark.parametrize("name", ["v-half", "v-min"])
def test_schedules_with_room_before_their_backward_passes_need_no_more_memory(name, ranks, micro_batches):
    without = SCHEDULES[name].lists(ranks, micro_batches, 2)
    for form in BESIDE:
        lists, *_ = usual(form, name, ranks, micro_batches, 1)
        assert list(map(most_in_flight, lists)) == list(map(most_in_flight, without))


def test_messages_are_hidden_beside_other_passes_and_exposed_when_all_wait():
    def longer(form):
        return (
            usual(form, "1f1b", 8, 64, 2, message=0.1)[2].makespan - usual(form, "1f1b", 8, 64, 2)[2].makespan
        )

    assert longer("interlaced") > 64 * 0.1
    assert max(longer(form) for form in BESIDE) < 0.5 * longer("interlaced")


def test_a_late_gradient_of_the_table_fills_gaps():
    shorter = [usual("vocab-2", "1f1b", 8, 64, 4, late=late) for late in (1, 2, 4, 8)]
    lengths = [timeline.makespan for *_, timeline in shorter]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < lengths[0]
    assert [max(map(most_waiting, lists)) for lists, *_ in shorter] == [1, 2, 4, 8]
    two = [format_actions(usual("vocab-1", "1f1b", 4, 8, 4, late=late)[0][0]) for late in (1, 8)]
    assert two[0] == two[1], "with two barriers other ranks wait for T"


def test_lists_of_two_small_cases():
    """Rank 0 has time for S and T before its first B; on rank 1 B of 0 comes behind F of 1."""
    lists, *_ = usual("vocab-2", "1f1b", 2, 3, 1)
    assert [format_actions(actions) for actions in lists] == [
        "0F0 0F1 2S0 2T0 0F2 2S1 2T1 0B0 2S2 2T2 0B1 0B2",
        "1F0 3S0 3T0 1F1 3S1 3T1 1B0 1F2 3S2 1B1 3T2 1B2",
    ]
    lists, *_ = usual("interlaced", "1f1b", 2, 3, 1)
    assert [format_actions(actions) for actions in lists] == [
        "0F0 2S0 2T0 0F1 2S1 2T1 0F2 0B0 2S2 2T2 0B1 0B2",
        "1F0 3S0 3T0 1B0 1F1 3S1 3T1 1B1 1F2 3S2 3T2 1B2",
    ]


@pytest.mark.parametrize("form", FORMS)
def test_a_bidirectional_schedule_is_refused_by_name(form):
    pipeline = Pipeline(ranks=2, micro_batches=4, placement=looped_placement(2, 2), times=equal_times(4))
    with pytest.raises(UnsupportedError, match="one last stage"):
        FORMS[form].lists([[], []], pipeline, StageChains(4, chains=2), ShareTimes(1, 1))


@pytest.mark.parametrize("name", sorted(set(ONE_WAY) - {"1f1b"}))
def test_interlaced_is_for_1f1b_alone(name):
    with pytest.raises(UnsupportedError, match="1F1B only"):
        usual("interlaced", name, 4, 8, 1)


@pytest.mark.parametrize("form", FORMS)
def test_shares_add_up_to_the_head(form):
    share = FORMS[form].share(PassTimes(2, 3, 5), 4)
    assert 4 * (share.s + share.t) == 10
    assert 4 * share.s == (2 if FORMS[form].barriers == 2 else 5)


@pytest.mark.parametrize(
    ("text", "barriers", "needed"),
    [
        ("5S3", 2, "3F3"),
        ("4T3", 2, "4S3 5S3"),
        ("3B3", 2, "4T3 5T3"),
        ("3I3", 1, "4S3 5S3"),
        ("2B3", 2, "3B3"),
        ("3W3", 2, "3B3"),
        ("0F3", 2, ""),
    ],
)
def test_what_an_action_needs_where_the_vocabulary_is_spread(text, barriers, needed):
    (action,) = parse_actions(text)
    keys = sources(action, StageChains(4, barriers=barriers, ranks=2))
    assert " ".join(f"{stage}{kind}{m}" for kind, stage, m in keys) == needed
