from itertools import pairwise

import pytest

from meshwright.schedules.action import RECEIVES, SENDS, format_actions, parse_actions
from meshwright.schedules.generators import SCHEDULES
from meshwright.schedules.insert_messages import insert_messages


def text(lists) -> list[str]:
    return [format_actions(actions) for actions in lists]


def test_two_ranks_one_micro_batch():
    lists = insert_messages(SCHEDULES["1f1b"].lists(2, 1, 1), (0, 1))
    assert text(lists) == ["0F0 0SEND_F0 0RECV_B0 0B0", "1RECV_F0 1F0 1B0 1SEND_B0"]


def test_input_gradients_are_sent_and_weight_gradients_are_not():
    lists = insert_messages([parse_actions("0F0 0I0 0W0"), parse_actions("1F0 1I0 1W0")], (0, 1))
    assert text(lists) == ["0F0 0SEND_F0 0RECV_B0 0I0 0W0", "1RECV_F0 1F0 1I0 1SEND_B0 1W0"]


def test_neighbours_on_one_rank_exchange_nothing():
    """A V: stages 1 and 2 lie on rank 1."""
    lists = [parse_actions("0F0 3F0 3B0 0B0"), parse_actions("1F0 2F0 2B0 1B0")]
    assert text(insert_messages(lists, (0, 1, 1, 0))) == [
        "0F0 0SEND_F0 3RECV_F0 3F0 3B0 3SEND_B0 0RECV_B0 0B0",
        "1RECV_F0 1F0 2F0 2SEND_F0 2RECV_B0 2B0 1B0 1SEND_B0",
    ]


@pytest.mark.parametrize(
    ("name", "ranks"),
    [(name, p) for name, kind in SCHEDULES.items() for p in (1, 2, 4) if kind.fault(p, 2 * p) is None],
)
def test_messages_are_added_and_nothing_else_changes(name, ranks):
    kind = SCHEDULES[name]
    chunks = 2 if kind.chunked else 1
    plain = kind.lists(ranks, 2 * ranks, chunks)
    placement = kind.placement(ranks, chunks)
    lists = insert_messages(plain, placement)
    passes = [[a for a in actions if a.kind not in SENDS + RECEIVES] for actions in lists]
    assert passes == plain
    boundaries = sum(a != b for a, b in pairwise(placement))
    for kinds in (SENDS, RECEIVES):
        assert (
            sum(a.kind in kinds for actions in lists for a in actions)
            == 2 * boundaries * 2 * ranks // kind.chains
        )
