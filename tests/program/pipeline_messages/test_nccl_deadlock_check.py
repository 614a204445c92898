import pytest

from meshwright.program.pipeline_messages.nccl_deadlock_check import check_messages
from meshwright.schedules.action import parse_actions
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.insert_messages import insert_messages

SHAPES = [(p, m, v) for p in (1, 2, 3, 4, 8) for m in (1, 2, 3, 4, 8, 16) for v in (1, 2, 3)]


def lists_of(name, ranks, micro_batches, chunks):
    lists = SCHEDULES[name].lists(ranks, micro_batches, chunks)
    placement = SCHEDULES[name].placement(ranks, chunks)
    return insert_messages(lists, placement), placement


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_finish_with_one_communicator_per_direction(name):
    kind = SCHEDULES[name]
    played = 0
    for ranks, micro_batches, chunks in SHAPES:
        if kind.allows(chunks) and kind.fault(ranks, micro_batches) is None:
            assert check_messages(*lists_of(name, ranks, micro_batches, chunks)) == []
            played += 1
    assert played >= 12


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("name", ["1f1b", "interleaved-1f1b"])
def test_one_communicator_per_pair_of_ranks_deadlocks(name, ranks):
    lists, placement = lists_of(name, ranks, 2 * ranks, 2 if SCHEDULES[name].chunked else 1)
    (problem,) = check_messages(lists, placement, per_direction=False)
    assert "wait" in problem.rule
    assert "direction" in problem.suggestion


def test_one_communicator_per_pair_suffices_where_directions_do_not_mix():
    assert check_messages(*lists_of("gpipe", 4, 8, 1), per_direction=False) == []


def test_messages_may_be_consumed_in_another_order_than_sent():
    """A V list: rank 0 sends 0F1 before 3B0, rank 1 needs 3B0 first; receives are posted in the channel's order."""
    lists = [
        parse_actions("0F0 0F1 3F0 3B0 0B0 3F1 3B1 0B1"),
        parse_actions("1F0 2F0 2B0 1B0 1F1 2F1 2B1 1B1"),
    ]
    placement = (0, 1, 1, 0)
    assert check_messages(insert_messages(lists, placement), placement) == []


def test_a_planted_cycle_is_found():
    """Rank 0 wants the gradient before it sends the activation that the gradient needs."""
    lists = [parse_actions("0F0 0RECV_B0 0SEND_F0 0B0"), parse_actions("1RECV_F0 1F0 1B0 1SEND_B0")]
    (problem,) = check_messages(lists, (0, 1))
    assert problem.value == "0RECV_B0 1RECV_F0"


def test_a_cycle_over_three_ranks_is_found():
    lists = [
        parse_actions("0RECV_B0 0F0 0SEND_F0 0B0"),
        parse_actions("1RECV_F0 1F0 1SEND_F0 1RECV_B0 1B0 1SEND_B0"),
        parse_actions("2RECV_F0 2F0 2B0 2SEND_B0"),
    ]
    (problem,) = check_messages(lists, (0, 1, 2))
    assert problem.value == "0RECV_B0 1RECV_F0 2RECV_F0"


GOOD = ("0F0 0SEND_F0 0F1 0SEND_F1", "1RECV_F0 1F0 1RECV_F1 1F1")


@pytest.mark.parametrize(
    ("lists", "fault"),
    [
        ((GOOD[0].replace(" 0SEND_F1", ""), GOOD[1]), "sent 0 times and received 1"),
        ((GOOD[0], GOOD[1].replace("1RECV_F1 ", "")), "sent 1 times and received 0"),
        ((GOOD[0] + " 0SEND_F0", GOOD[1]), "sent 2 times and received 1"),
        ((GOOD[0], GOOD[1] + " 1RECV_F1"), "sent 1 times and received 2"),
        ((GOOD[0].replace("SEND_F1", "SEND_F7"), GOOD[1]), "sent 1 times and received 0"),
    ],
)
def test_messages_that_do_not_pair_up_are_found(lists, fault):
    problems = check_messages([parse_actions(actions) for actions in lists], (0, 1))
    assert any(fault in problem.rule for problem in problems)


@pytest.mark.parametrize(
    "lists",
    [
        ("0RECV_F0", "1F0"),  # nothing comes before the first stage
        ("0F0", "1SEND_F0"),  # nothing comes after the last one
        ("0F0", "1F0 0SEND_F0"),  # on the wrong rank
        ("0F0 7SEND_F0", "1F0"),  # no such stage
    ],
)
def test_messages_that_can_not_be_are_found(lists):
    problems = check_messages([parse_actions(actions) for actions in lists], (0, 1))
    assert [problem.rule for problem in problems] == ["there is no such message on this rank"]


def test_neighbours_on_one_rank_have_no_message():
    lists = [parse_actions("0F0 0SEND_F0 1RECV_F0 1F0")]
    assert len(check_messages(lists, (0, 0))) == 2


def test_the_checked_example_is_good():
    assert check_messages([parse_actions(actions) for actions in GOOD], (0, 1)) == []
