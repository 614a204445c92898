"""DualPipe and DualPipeV: the published bubble and memory (github.com/deepseek-ai/DualPipe), and those of our lists."""

from dataclasses import replace
from fractions import Fraction

import pytest

from meshwright.play.in_flight import most_in_flight
from meshwright.schedules.action import format_actions
from meshwright.schedules.activation_memory import peaks
from meshwright.schedules.custom.check_lists import check_lists
from meshwright.schedules.dependencies import dependency_key, sources
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.timeline import run

SHAPES = [
    (name, p, m) for name in ("dualpipe", "dualpipev") for p in (2, 4, 8) for m in (2 * p, 3 * p, 6 * p)
]
SECONDS = [(1, 1, 1), (2, 2, 1), (3, 3, 2), (4, 4, 1), (5, 5, 5)]
"""F, I and W of a stage, F = I ≥ W."""


def lists_of(name, p, m):
    return SCHEDULES[name].lists(p, m, 2)


def half(name, p):
    """PP/2 of the published formula, which counts the stages of one way."""
    return p // 2 if name == "dualpipe" else p


def work(name, m, seconds):
    """Of every rank: two stages, each with the micro-batches of its way."""
    return 2 * m // SCHEDULES[name].chains * sum(seconds)


@pytest.mark.parametrize(("name", "p", "m"), SHAPES)
@pytest.mark.parametrize("seconds", SECONDS)
def test_pairs_that_run_as_one_block_without_overlap_have_the_published_bubble(name, p, m, seconds):
    """(PP/2−1)·(F&B + B − 3W) with F&B = F + B; both results of a pair are there when the block has ended."""
    forward, half_backward, weight = seconds
    backward = half_backward + weight
    published = (half(name, p) - 1) * (forward + backward + backward - 3 * weight)
    assert span_of_blocks(name, p, m, seconds) - work(name, m, seconds) == published


@pytest.mark.parametrize(("name", "p", "m"), SHAPES)
@pytest.mark.parametrize("seconds", SECONDS)
def test_results_that_leave_at_once_make_the_bubble_of_lists_smaller(name, p, m, seconds):
    """(PP/2−1)·(F + B − 2W): one I less for each."""
    forward, half_backward, weight = seconds
    times = {"F": forward, "I": half_backward, "W": weight}
    timeline = run(lists_of(name, p, m), lambda a: times[a.kind], ways=SCHEDULES[name].ways(p, 2))
    bubble = (half(name, p) - 1) * (forward + half_backward - weight)
    assert timeline.makespan - work(name, m, seconds) == bubble


@pytest.mark.parametrize(("name", "p", "m"), SHAPES)
def test_one_more_pass_is_in_flight_than_the_pipeline_has_stages(name, p, m):
    """PP + 1, on every rank; in the memory unit a stage of DualPipe is a whole rank's part, one of DualPipeV a half."""
    lists, ways = lists_of(name, p, m), SCHEDULES[name].ways(p, 2)
    assert [most_in_flight(actions) for actions in lists] == [2 * half(name, p) + 1] * p
    assert peaks(lists, ways) == (ways.chains * (2 * half(name, p) + 1),) * p


@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (8, 20)])
def test_dualpipe_is_two_dualpipev_that_mirror_each_other(p, m):
    """Every rank does what a rank of DualPipeV with half of the ranks and micro-batches does, kind by kind."""
    whole, cut = lists_of("dualpipe", p, m), lists_of("dualpipev", p // 2, m // 2)
    for rank, actions in enumerate(whole):
        same = cut[min(rank, p - 1 - rank)]
        assert [a.kind for a in actions] == [a.kind for a in same]
        assert [a.micro_batch % (m // 2) for a in actions] == [a.micro_batch for a in same]
    assert {a.stage for a in whole[0]} == {0, 2 * p - 1}
    assert {a.micro_batch for a in whole[0] if a.stage == 0} == set(range(m // 2))
    assert {a.micro_batch for a in whole[0] if a.stage == 2 * p - 1} == set(range(m // 2, m))


def test_the_example_of_eight_ranks_and_twenty_micro_batches_begins_with_the_steps_of_the_repository():
    """Outermost 6 × F0, F0 F1, I1 W F1; innermost 4 × F0 F1 and the main part."""
    first, middle = lists_of("dualpipe", 8, 20)[0], lists_of("dualpipe", 8, 20)[3]
    assert format_actions(first[:11]) == "0F0 0F1 0F2 0F3 0F4 0F5 0F6 15F10 15I10 15W10 15F11"
    assert format_actions(middle[:10]) == "3F0 12F10 3F1 12F11 3F2 12F12 3F3 12F13 3F4 12I10"


@pytest.mark.parametrize(
    ("name", "p"), [("dualpipe", 2), ("dualpipe", 8), ("dualpipev", 1), ("dualpipev", 5)]
)
def test_fewer_micro_batches_than_the_ends_take_are_played_too(name, p):
    for m in range(2, 2 * p, 2):
        assert check_lists(lists_of(name, p, m)) == []


def test_both_ways_need_even_numbers():
    kind = SCHEDULES["dualpipe"]
    assert kind.fault(4, 8) is None
    assert "3 % 2" in kind.fault(3, 8)
    assert "9 % 2" in kind.fault(4, 9)


def span_of_blocks(name, p, m, seconds):
    """The longest rank when passes run in blocks: all begin when all can, and give their results at the end."""
    kind, length = SCHEDULES[name], dict(zip("FIW", map(Fraction, seconds), strict=True))
    ways = kind.ways(p, 2)
    todo = [
        blocks(actions, rank in (half(name, p) - 1, p - half(name, p)))
        for rank, actions in enumerate(kind.lists(p, m, 2))
    ]
    clock, begun, done = [Fraction(0)] * p, [None] * p, {}
    while any(todo):
        before = sum(map(len, todo))
        for rank in range(p):
            while todo[rank]:
                block = todo[rank][0]
                needed = {key for a in block for key in sources(a, ways)} - {dependency_key(a) for a in block}
                if not needed <= done.keys():
                    break
                start = max([clock[rank], *(done[key] for key in needed)])
                begun[rank] = start if begun[rank] is None else begun[rank]
                clock[rank] = start + sum(length[a.kind] for a in block)
                done |= dict.fromkeys(map(dependency_key, block), clock[rank])
                todo[rank].pop(0)
        assert sum(map(len, todo)) < before
    return max(end - start for start, end in zip(begun, clock, strict=True))


def blocks(actions, innermost):
    """F with I and its own W of the rank's other stage behind it is a pair; I and W together are B from there on.

    Before the first pair they are apart. The innermost ranks run the F and B of their first pair one after the other.
    """
    parts, seen = [], False
    for action in actions:
        last = parts[-1] if parts else []
        behind_its_own = last and action.kind == "W" and last[-1] == replace(action, kind="I")
        pair = behind_its_own and len(parts) > 1 and forms_pair(parts[-2], last)
        if behind_its_own and (seen or pair):
            last.append(action)
            if pair and (seen or not innermost):
                parts[-2:] = [parts[-2] + last]
            seen = True
        else:
            parts.append([action])
    return parts


def forms_pair(forward, backward):
    return [a.kind for a in forward] == ["F"] and forward[0].stage != backward[0].stage
