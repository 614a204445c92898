"""The progress of ranks in shared memory, and which of them hang."""

import os

import pytest

from meshwright.runtime.recovery.named_faults import hang_faults, kill_faults
from meshwright.runtime.recovery.progress_board import Progress, ProgressBoard, hanging_ranks

NOW, LIMIT = 1000.0, 10.0


def row(step=5, since=0.0, waiting=True, doing="all-reduce of layer 1"):
    return Progress(step, 7, since, waiting, doing, 0.0, frozenset())


def test_a_parent_reads_what_a_forked_rank_wrote():
    board = ProgressBoard(3)
    child = os.fork()
    if not child:
        own = board.row(1)
        own.begin_step(4)
        own.note(12, "an all-reduce with ümlauts", waiting=True)
        own.fire(2)
        os._exit(0)
    os.waitpid(child, 0)
    others, own = [board.progress(0), board.progress(2)], board.progress(1)
    assert (own.step, own.sequence, own.doing, own.waiting) == (
        4,
        12,
        "an all-reduce with ümlauts",
        True,
    )
    assert own.fired == {2}
    assert own.injected_s > 0
    assert all((one.step, one.fired, one.injected_s) == (-1, frozenset(), 0.0) for one in others)


@pytest.mark.parametrize(
    ("rows", "ended", "expected"),
    [
        ([row(), row(waiting=False), row()], (), [1]),  # the others wait for it
        ([row(), row(waiting=False, since=NOW - 1), row()], (), []),  # it computes
        ([row(), row(since=NOW - 1)], (), []),
        ([row(), row(step=4), row()], (), [1]),  # all wait, one is behind
        ([row(since=3.0), row(since=2.0)], (), [1]),  # all wait for as long: the first that did
        ([row(waiting=False), row()], (0,), [1]),  # the first one is done
        ([row(step=-1, waiting=False), row()], (), []),  # not begun: no statement
        ([row(waiting=False), row(waiting=False)], (), [0, 1]),
        ([row()], (0,), []),
    ],
)
def test_which_ranks_hang(rows, ended, expected):
    assert hanging_ranks(rows, frozenset(ended), NOW, LIMIT) == expected


def test_the_evidence_names_what_ranks_did_last_and_who_waits():
    rows = [row(doing="all-reduce of layer 1"), row(doing="F(0, 1)", since=NOW - 12, waiting=False)]
    (hang,) = hang_faults(rows, [1], NOW)
    assert (hang.rank, hang.step, hang.detected_s) == (1, 5, 12)
    assert "12.0 s in F(0, 1)" in hang.evidence
    assert "rank 0 in all-reduce of layer 1" in hang.evidence
    (kill,) = kill_faults(rows, {1: "rank 1 was ended by SIGKILL"}, NOW)
    assert kill.evidence.startswith("rank 1 was ended by SIGKILL, 12.00 s after")


def test_an_injection_is_the_onset():
    rows = [Progress(3, 1, 900.0, False, "", 990.0, frozenset({0}))]
    assert hang_faults(rows, [0], NOW)[0].detected_s == 10
