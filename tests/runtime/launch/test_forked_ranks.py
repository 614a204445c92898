"""Ranks as processes of this host: what rank 0 returns, and what is said of a rank that fails, dies or is late."""

import os
import signal
import time
from multiprocessing import active_children, get_context

import pytest

pytest.importorskip("torch")

from meshwright.errors import MeasurementError, RunError
from meshwright.measurement.collectives import Collectives
from meshwright.measurement.rank_groups import collective_rounds
from meshwright.measurement.rank_session import join_job
from meshwright.runtime.launch.forked_ranks import run_locally

OPERATION_S = 2.0
LIMIT_S = 30.0
SOON_S = 15.0
"""Well below the limit: whoever waited for that was stuck."""


def silent(what, part):
    pass


def in_session(body, operation_s=LIMIT_S):
    """Work that does ``body(session)`` in a job of all ranks."""

    def work(place, store, tell):
        with join_job(place, f"host{place.rank}", store, operation_s) as session:
            return body(session)

    return work


def failure(work, ranks=3, limit_s=LIMIT_S):
    """What is said when the work fails."""
    with pytest.raises(RunError) as error:
        run_locally(work, ranks, limit_s, silent)
    return str(error.value)


def test_rank_0_returns_what_all_said_and_progress_is_heard():
    heard = []

    def work(place, store, tell):
        with join_job(place, "here", store) as session:
            tell(f"rank {place.rank}", 0.5)
            return (
                session.gathered(place.rank),
                session.agree(place.rank),
                session.gathered_numbers([place.rank]),
            )

    values = run_locally(work, 3, LIMIT_S, lambda what, part: heard.append((what, part)))
    assert values == ([0, 1, 2], 2.0, [[0.0], [1.0], [2.0]])
    assert sorted(heard) == [(f"rank {rank}", 0.5) for rank in range(3)]


def test_a_rank_that_raises_is_named_with_its_host_by_all():
    def body(session):
        if session.place.rank == 1:
            raise ValueError("the numbers are gone")
        session.agree(1.0)

    assert failure(in_session(body)) == "rank 1 on host1: ValueError: the numbers are gone"


def test_every_rank_reports_the_first_failure():
    said = []

    def work(place, store, tell):
        try:
            with join_job(place, f"host{place.rank}", store) as session:
                if place.rank == 2:
                    raise ValueError("first")
                session.agree(1.0)
        except MeasurementError as error:
            return str(error)

    said = run_locally(work, 3, LIMIT_S, silent)
    assert said == "rank 2 on host2: ValueError: first"


def test_a_rank_that_is_killed_is_named():
    def body(session):
        if session.place.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        session.agree(1.0)

    assert failure(in_session(body)) == (
        "rank 2 was ended by SIGKILL, as the system does to processes when memory runs out"
    )


def test_a_rank_that_leaves_without_a_word_is_named():
    assert failure(lambda place, store, tell: os._exit(0) if place.rank == 1 else time.sleep(60)) == (
        "rank 1 ended without a word"
    )


def test_ranks_that_are_late_are_named():
    said = failure(lambda place, store, tell: time.sleep(60 * place.rank), limit_s=1.0)
    assert said == "not done within 1 s: rank 1, 2"


def test_a_collective_in_which_a_rank_does_not_come_says_which_collective_and_whose():
    def body(session):
        if session.place.rank == 1:
            time.sleep(60)
        Collectives(session).play(collective_rounds(["a"] * 3)[-1], 0.1)

    said = failure(in_session(body, OPERATION_S))
    assert "all-reduce of 4096 bytes among ranks 0, 1, 2" in said
    assert "on host0" in said or "on host2" in said


def test_a_rank_that_never_comes_ends_the_meeting():
    def work(place, store, tell):
        if place.rank == 1:
            time.sleep(60)
        with join_job(place, "here", store, OPERATION_S):
            return None

    assert "meeting of all ranks" in failure(work)


def test_ranks_end_with_their_parent_even_if_it_was_killed(tmp_path):
    def work(place, store, tell):
        (tmp_path / str(place.rank)).write_text(str(os.getpid()))
        time.sleep(LIMIT_S)

    parent = get_context("fork").Process(target=run_locally, args=(work, 2, None, silent))
    parent.start()
    end = time.monotonic() + SOON_S
    while len([path for path in tmp_path.iterdir() if path.read_text()]) < 2:
        assert time.monotonic() < end
        time.sleep(0.01)
    ranks = [int(path.read_text()) for path in tmp_path.iterdir()]
    parent.kill()
    parent.join()
    while any(map(is_running, ranks)):
        assert time.monotonic() < end, "a rank outlives its parent"
        time.sleep(0.01)


def is_running(process):
    """Whether a process is there and not merely a remnant that nobody has asked for."""
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_an_interrupt_inside_a_fork_is_heard():
    """Python drops an exception that is raised in what runs around a fork."""
    armed = [True]

    def interrupt():
        if armed:
            armed.clear()
            signal.raise_signal(signal.SIGINT)

    os.register_at_fork(after_in_parent=interrupt)
    with pytest.raises(KeyboardInterrupt):
        run_locally(lambda place, store, tell: time.sleep(LIMIT_S), 2, LIMIT_S, silent)
    assert not armed
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not active_children()
