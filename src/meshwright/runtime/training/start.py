"""Starting a training run: as the rank that a launcher made of this process, or on forked ranks of this host."""

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import active_children
from threading import current_thread, main_thread
from types import FrameType

import torch
import torch.distributed as dist
from rich.console import Console

from meshwright.errors import InputError, Problem
from meshwright.runtime.data.opening import TrainingData
from meshwright.runtime.launch.environment import Place
from meshwright.runtime.launch.local import Tell, run_locally
from meshwright.runtime.launch.meeting import run_launched
from meshwright.runtime.training.outcome import Outcome, Training
from meshwright.runtime.training.stopping import SIGNALS
from meshwright.runtime.training.train import train

MOST_LOCAL = 16


def start(
    training: Training, data: TrainingData, place: Place | None, remarks: Sequence[str] | None
) -> Outcome | None:
    """Train; None on launched ranks other than the first. ``place`` is a launcher's. Raises InputError, RunError.

    ``remarks`` are told first on standard error, and then how the run goes; nothing at all where they are None.
    """
    console = None if remarks is None else Console(stderr=True)
    if console is not None and (place is None or place.rank == 0):
        for remark in remarks or ():
            console.print(remark, markup=False, highlight=False)

    def work(place: Place, store: dist.Store, tell: Tell) -> Outcome:
        return train(place, store, training, data, console)

    if place is not None:
        outcome = run_launched(work, place)
    else:
        with _stopping_ranks():
            outcome = run_locally(work, training.job.program.grid.ranks, None, lambda what, part: None)
    assert isinstance(outcome, Outcome)
    return outcome if place is None or place.rank == 0 else None


def check_host(ranks: int, place: Place | None, *, cpu: bool) -> None:
    """Whether the ranks have their places here. Raises InputError."""
    devices = 0 if cpu else torch.cuda.device_count()
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
def _stopping_ranks() -> Iterator[None]:
    """The first signal is passed on, and ranks finish their step; the second one ends them at once."""

    def at_once(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    def pass_on(number: int, frame: FrameType | None) -> None:
        for known in SIGNALS:
            signal.signal(known, at_once)
        for rank in active_children():
            rank.terminate()

    if current_thread() is not main_thread():  # which alone hears signals
        yield
        return
    before = {number: signal.signal(number, pass_on) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
