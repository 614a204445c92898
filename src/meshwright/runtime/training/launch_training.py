"""Start a training run: as a launched rank in this process, or on forked ranks of this host."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import active_children
from threading import current_thread, main_thread
from types import FrameType

import torch
import torch.distributed as dist

from meshwright.errors import InputError, Problem
from meshwright.runtime.data.open_data import TrainingData
from meshwright.runtime.faults.fault import Fault
from meshwright.runtime.launch.forked_ranks import Report
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.launch.rendezvous import run_launched
from meshwright.runtime.progress.lossy_console import lossy_console
from meshwright.runtime.recovery.launched_watch import watched
from meshwright.runtime.recovery.members.run_members import Shrinkable, facts_of_run, run_members
from meshwright.runtime.recovery.progress_board import ProgressBoard, ProgressRow
from meshwright.runtime.recovery.supervise import Replan, Supervisor
from meshwright.runtime.training.job_and_outcome import Outcome, Training
from meshwright.runtime.training.output_lock import sole_writer, sole_writers
from meshwright.runtime.training.stop_signals import acknowledge, handled_signals
from meshwright.runtime.training.train_rank import train

MOST_LOCAL = 16


def start(
    training: Training,
    data: TrainingData,
    place: Place | None,
    remarks: Sequence[str] | None,
    replan: Replan,
    shrinkable: Shrinkable | None = None,
) -> Outcome | None:
    """Train; return None on launched ranks other than the first.

    ``place`` is a launcher's; ``replan`` plans anew for fewer devices; ``shrinkable`` are the plans of fewer replicas,
    where those that are left go on. Raises InputError, RunError.

    ``remarks`` are printed first on standard error, then the run's progress; nothing if they are None.
    """
    console = None if remarks is None else lossy_console()
    if console is not None and (place is None or place.rank == 0):
        for remark in remarks or ():
            console.print(remark, markup=False, highlight=False, soft_wrap=True)

    early: list[int] = []

    def work(
        training: Training, place: Place, store: dist.Store, report: Report, row: ProgressRow
    ) -> Outcome:
        return train(place, store, training, data, console, report, row, early=early)

    def launched_work(place: Place, store: dist.Store, report: Report) -> Outcome:
        board = ProgressBoard(place.rank + 1)
        with (
            sole_writers(place, store, training.options.output),
            watched(store, place, board, training.hang_s),
        ):
            return work(training, place, store, report, board.row(place.rank))

    told: list[Fault] = []

    def listen(rank: int, subject: object) -> None:
        if isinstance(subject, Fault):
            told.append(subject)

    def say(text: str) -> None:
        if console is not None:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    if place is not None:
        outcome = run_launched(launched_work, place, listen)
        assert isinstance(outcome, Outcome)
        outcome = replace(outcome, faults=tuple(told))
    else:
        with sole_writer(training.options.output), _stopping_ranks(early, announce=console is not None):
            if shrinkable is not None:
                return run_members(training, shrinkable, data, console, early)
            facts = facts_of_run(training, data, 1)
            outcome = Supervisor(training, work, replan, say, lambda: bool(early), facts).run()
    assert isinstance(outcome, Outcome)
    return outcome if place is None or place.rank == 0 else None


def accelerators_here(*, cpu: bool) -> int:
    """Return the number of accelerators that a run uses on this host, without initialising them."""
    return 0 if cpu else torch.cuda.device_count()


def check_host(ranks: int, place: Place | None, *, cpu: bool) -> None:
    """Raise InputError if the plan's ranks do not fit on this host."""
    devices = accelerators_here(cpu=cpu)
    if place is not None and place.ranks != ranks:
        rule = f"{place.launcher} started {place.ranks} processes, the plan has {ranks} devices"
        raise InputError(Problem("ranks", place.ranks, rule, f"start {ranks} processes"))
    if place is None and ranks > MOST_LOCAL:
        rule = f"the plan has {ranks} devices, a host runs at most {MOST_LOCAL} ranks by itself"
        raise InputError(Problem("ranks", ranks, rule, torchrun_line(ranks)))
    here = ranks if place is None else place.local_rank + 1
    if 0 < devices < here:
        rule = f"this host has {devices} devices, and more ranks than that"
        raise InputError(Problem("ranks", here, rule, "--cpu, or more hosts: " + torchrun_line(ranks)))


def torchrun_line(ranks: int, per_node: int = 8) -> str:
    """Return a command line that starts a plan's ranks on several hosts."""
    nodes, local = (ranks // per_node, per_node) if ranks % per_node == 0 else (1, ranks)
    return (
        f"torchrun --nnodes {nodes} --nproc-per-node {local} --rdzv-backend c10d --rdzv-endpoint HOST:29500 "
        "--no-python meshwright run PLAN on every host"
    )


@contextmanager
def _stopping_ranks(early: list[int], *, announce: bool) -> Iterator[None]:
    """Pass the first signal on, so that ranks finish their step; let the second one end them at once.

    A terminal that closes sends SIGHUP more than once, so that does not count as a second signal. Ranks that do not yet
    handle signals inherit this handler: they record the signals in ``early``.
    """
    listened, parent = handled_signals(), os.getpid()

    def at_once(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def pass_on(number: int, frame: FrameType | None) -> None:
        early.append(number)
        if os.getpid() != parent:
            return
        for known in listened:
            signal.signal(known, signal.SIG_IGN if known == signal.SIGHUP else at_once)
        for rank in active_children():
            rank.terminate()
        if announce:
            acknowledge("; a second signal ends the run at once")

    if current_thread() is not main_thread():  # only the main thread receives signals
        yield
        return
    before = {number: signal.signal(number, pass_on) for number in listened}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
