"""Starting a training run: as the rank that a launcher made of this process, or on forked ranks of this host."""

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import active_children
from threading import current_thread, main_thread
from types import FrameType

import torch
import torch.distributed as dist

from meshwright.errors import InputError, Problem
from meshwright.runtime.data.opening import TrainingData
from meshwright.runtime.launch.environment import Place
from meshwright.runtime.launch.local import Tell, run_locally
from meshwright.runtime.launch.meeting import run_launched
from meshwright.runtime.progress.lossy import lossy_console
from meshwright.runtime.training.outcome import Outcome, Training
from meshwright.runtime.training.output_lock import sole_writer, sole_writers
from meshwright.runtime.training.stopping import acknowledge, heeded
from meshwright.runtime.training.train import train

MOST_LOCAL = 16


def start(
    training: Training, data: TrainingData, place: Place | None, remarks: Sequence[str] | None
) -> Outcome | None:
    """Train; None on launched ranks other than the first. ``place`` is a launcher's. Raises InputError, RunError.

    ``remarks`` are told first on standard error, and then how the run goes; nothing at all where they are None.
    """
    console = None if remarks is None else lossy_console()
    if console is not None and (place is None or place.rank == 0):
        for remark in remarks or ():
            console.print(remark, markup=False, highlight=False, soft_wrap=True)

    early: list[int] = []

    def work(place: Place, store: dist.Store, tell: Tell) -> Outcome:
        return train(place, store, training, data, console, early=early)

    def launched_work(place: Place, store: dist.Store, tell: Tell) -> Outcome:
        with sole_writers(place, store, training.options.output):
            return work(place, store, tell)

    if place is not None:
        outcome = run_launched(launched_work, place)
    else:
        with sole_writer(training.options.output), _stopping_ranks(early, told=console is not None):
            outcome = run_locally(work, training.job.program.grid.ranks, None, lambda what, part: None)
    assert isinstance(outcome, Outcome)
    return outcome if place is None or place.rank == 0 else None


def accelerators_here(*, cpu: bool) -> int:
    """How many accelerators a run uses on this host; asking leaves them untouched."""
    return 0 if cpu else torch.cuda.device_count()


def check_host(ranks: int, place: Place | None, *, cpu: bool) -> None:
    """Whether the ranks have their places here. Raises InputError."""
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
    """How to start a plan's ranks on several hosts."""
    nodes, local = (ranks // per_node, per_node) if ranks % per_node == 0 else (1, ranks)
    return (
        f"torchrun --nnodes {nodes} --nproc-per-node {local} --rdzv-backend c10d --rdzv-endpoint HOST:29500 "
        "--no-python meshwright run PLAN on every host"
    )


@contextmanager
def _stopping_ranks(early: list[int], *, told: bool) -> Iterator[None]:
    """The first signal is passed on, and ranks finish their step; the second one ends them at once.

    A terminal that closes sends SIGHUP more than once, so that is no second one. Ranks that do not listen themselves
    yet have what is here from their parent: they remember what they hear in ``early``.
    """
    listened, parent = heeded(), os.getpid()

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
        if told:
            acknowledge("; a second signal ends the run at once")

    if current_thread() is not main_thread():  # which alone hears signals
        yield
        return
    before = {number: signal.signal(number, pass_on) for number in listened}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
