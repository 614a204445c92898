"""A spread vocabulary in lists that somebody wrote: all forms of all schedules are good, and every fault is named."""

import pytest

from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.custom.csv_file import format_csv
from meshwright.schedules.custom.custom_schedule import CustomSchedule
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.vocabulary import FORMS

RANKS, COUNT = 4, 8
CASES = [
    (name, form)
    for name, kind in SCHEDULES.items()
    for form, entry in FORMS.items()
    if kind.chains == 1 and entry.only in (None, name)
]


def lists_of(name, form):
    kind = SCHEDULES[name]
    chunks = kind.fixed_chunks or (2 if kind.chunked else 1)
    return ScheduleChoice(name, vocabulary=form).lists(RANKS, COUNT, chunks)


def written(lists):
    return CustomSchedule(tuple(format_csv(lists).splitlines()), "mine.csv")


@pytest.mark.parametrize(("name", "form"), CASES)
def test_lists_of_a_form_are_lists_of_ones_own(name, form):
    lists = lists_of(name, form)
    mine = written(lists)
    assert mine.problems == []
    assert FORMS[form].barriers in mine.kind.barriers
    choice = ScheduleChoice("mine.csv", vocabulary=form, written=mine)
    assert choice.lists(RANKS, COUNT, mine.kind.fixed_chunks) == lists


def test_lists_without_shares_have_no_barriers():
    assert written(SCHEDULES["1f1b"].lists(RANKS, COUNT, 1)).kind.barriers == ()


def test_t_behind_the_backward_pass_is_for_one_barrier():
    late = [
        [a for kinds in ("FBES", "T", "D") for a in actions if a.kind in kinds]
        for actions in lists_of("1f1b", "vocab-2")
    ]
    assert written(late).kind.barriers == (1,)
    assert written(lists_of("1f1b", "vocab-1")).kind.barriers == (1, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda text: text.replace("5S3,", "", 1),
            "mine.csv, line 2 = '5S3': is missing. Suggestion: add 5S3",
        ),
        (lambda text: text.replace("5S3", "5S3,5S3", 1), "'5S3': is there 2 times"),
        (
            lambda text: text.replace("5S3", "6S3", 1),
            "is no pass of this rank's share of the vocabulary, which is 5",
        ),
        (lambda text: swapped(text, "5S3", "5S4"), "a communicator keeps its order"),
        (lambda text: swapped(text, "6E3", "6E4"), "a communicator keeps its order"),
        (lambda text: swapped(text, "7T0", "7S7"), "a communicator keeps its order"),
        (lambda text: text.replace("4E", "4REDUCE_E"), "is no pass of a micro-batch"),
    ],
)
def test_faults_are_named_with_their_line(change, message):
    text = change(format_csv(lists_of("1f1b", "vocab-1")))
    problems = CustomSchedule(tuple(text.splitlines()), "mine.csv").problems
    assert message in " ".join(map(str, problems))


def test_ranks_that_wait_for_each_other_are_named():
    """The last rank wants to go back before any rank has its share of the logits."""
    lists = lists_of("1f1b", "vocab-1")
    last = [action for action in lists[-1] if action.kind != "S"]
    place = next(at for at, action in enumerate(last) if action.kind == "B")
    shares = [action for action in lists[-1] if action.kind == "S"]
    lists[-1] = [*last[: place + 1], *shares, *last[place + 1 :]]
    problems = written(lists).problems
    assert "the ranks wait for each other" in " ".join(map(str, problems))


def test_two_ways_have_no_shares():
    lists = SCHEDULES["dualpipe"].lists(RANKS, COUNT, 2)
    text = format_csv(lists).replace("0F0", "8E0,0F0", 1)
    problems = CustomSchedule(tuple(text.splitlines()), "mine.csv").problems
    assert "a vocabulary is spread behind one last stage" in " ".join(map(str, problems))


def swapped(text, one, other):
    return text.replace(one, "x", 1).replace(other, one, 1).replace("x", other, 1)
