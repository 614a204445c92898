"""Run ranks as forked processes of this host, which meet through a file.

A fork of a parent that has imported torch costs milliseconds, a fresh interpreter seconds; a file needs no free port.
The parent must not have used torch before, since threads and an accelerator's context do not survive a fork.

The first rank that fails, dies or exceeds the limit ends all of them. Ranks whose parent has died end themselves, so
that they do not write into files of a next run.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread, current_thread, main_thread
from time import monotonic
from typing import Any, NamedTuple

import torch.distributed as dist

from meshwright.errors import InputError, MeshwrightError, RunError
from meshwright.runtime.faults.fault import FaultError
from meshwright.runtime.launch.launcher_environment import Place

ProgressCallback = Callable[[str, float], None]
"""Callback that receives the current activity and the completed fraction of the whole."""
Listener = Callable[[int, object], None]
"""Callback that receives what a rank tells: the rank, and a value that can be pickled."""


@dataclass(frozen=True, slots=True)
class Report:
    """The messages of a rank while it works: its progress, and values for a listener."""

    send: Callable[[tuple[str, object]], None]

    def __call__(self, what: str, part: float) -> None:
        """Tell the current activity and the completed fraction of the whole."""
        self.send(("progress", (what, part)))

    def tell(self, subject: object) -> None:
        """Tell a value that can be pickled to the listener of the run."""
        self.send(("told", subject))


RankWork = Callable[[Place, dist.Store, Report], object]

LIKELY: dict[int, str] = {signal.SIGKILL: ", as the system does to processes when memory runs out"}
DYING_S = 0.3
"""Seconds within which a rank's death and its partners' broken connections are seen."""


class Rank(NamedTuple):
    """A process, its rank number, and the pipe it reports on."""

    number: int
    process: BaseProcess
    pipe: Connection


class ParentPipe(NamedTuple):
    """A pipe whose writing end only the parent holds: it closes when the parent dies."""

    reading: int
    writing: int


def run_locally(work: RankWork, processes: int, limit_s: float | None, report: ProgressCallback) -> object:
    """Run ``work`` on local ranks and return rank 0's result. Raises RunError naming the rank at fault.

    Without ``limit_s`` there is no time limit. An InputError of a rank is raised unchanged.
    """
    with started_ranks(work, processes) as ranks:
        return _result(ranks, limit_s, report)


@contextmanager
def started_ranks(work: RankWork, processes: int) -> Iterator[list[Rank]]:
    """Start ``work`` on local ranks, which meet through a file; end all that still run when the block ends."""
    with TemporaryDirectory(prefix="meshwright-") as folder, _life() as life:
        ranks: list[Rank] = []
        try:
            with _interrupts_later():
                for number in range(processes):
                    place = Place(number, processes, number, "local")
                    ranks.append(_started(work, place, Path(folder) / "store", life))
            yield ranks
        finally:
            for rank in ranks:
                rank.process.kill()
            for rank in ranks:
                rank.process.join()
                rank.pipe.close()


@contextmanager
def _life() -> Iterator[ParentPipe]:
    life = ParentPipe(*os.pipe())
    try:
        yield life
    finally:
        for end in life:
            os.close(end)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """Defer SIGINT until the block ends: inside a fork Python would drop the exception.

    Blocking the signal is not enough: another thread may receive it and leave the exception to this one.
    """
    before = signal.getsignal(signal.SIGINT)
    if current_thread() is not main_thread() or before is None:
        yield
        return
    heard: list[int] = []
    signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if heard:
        signal.raise_signal(signal.SIGINT)


def _started(work: RankWork, place: Place, store: Path, life: ParentPipe) -> Rank:
    """Start a rank. Closing the parent's writing end before the next fork makes the rank's exit visible."""
    reading, writing = get_context("fork").Pipe(duplex=False)
    process = get_context("fork").Process(target=_run, args=(work, place, store, writing, life), daemon=True)
    process.start()
    writing.close()
    return Rank(place.rank, process, reading)


def _run(work: RankWork, place: Place, store: Path, pipe: Connection, life: ParentPipe) -> None:
    """Run a rank's work and send how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles interrupts and ends all ranks
    os.close(life.writing)
    Thread(target=_end_with_parent, args=(life.reading,), daemon=True).start()

    with suppress(BrokenPipeError):
        try:
            pipe.send(("done", work(place, dist.FileStore(str(store), place.ranks), Report(pipe.send))))
        except FaultError as error:
            pipe.send(("faults", error.faults))
        except InputError as error:
            pipe.send(("refused", error.problems))
        except Exception as error:
            named = isinstance(error, MeshwrightError)
            text = str(error) if named else f"rank {place.rank}: {type(error).__name__}: {error}"
            pipe.send(("failed", text))


def _end_with_parent(reading: int) -> None:
    """End this process when the parent dies."""
    os.read(reading, 1)
    os._exit(1)


def _result(ranks: Sequence[Rank], limit_s: float | None, report: ProgressCallback) -> object:
    """Wait for all ranks and return rank 0's result."""
    working, value, began = {rank.pipe: rank for rank in ranks}, None, monotonic()
    while working:
        left = None if limit_s is None else max(0.0, began + limit_s - monotonic())
        ready = connection.wait(list(working), timeout=left)
        if not ready:
            late = ", ".join(str(rank.number) for rank in working.values())
            raise RunError(f"not done within {limit_s:.0f} s: rank {late}")
        for pipe in ready:
            rank = next(rank for rank in ranks if rank.pipe is pipe)
            word, content = heard(rank)
            if word == "progress":
                report(*content)
            elif word == "refused":
                raise InputError(content)
            elif word == "failed":
                raise RunError("; ".join(deaths(ranks).values()) or content)
            else:
                value = content if rank.number == 0 else value
                del working[rank.pipe]
    return value


def heard(rank: Rank) -> tuple[str, Any]:
    """Return the kind and content of a rank's next message.

    Kinds: ``progress``, ``told``, ``done``, ``faults``, ``refused``, ``failed``.
    """
    try:
        word, content = rank.pipe.recv()
        return word, content
    except EOFError:
        return "failed", f"rank {rank.number} ended without a word"


def deaths(ranks: Sequence[Rank]) -> dict[int, str]:
    """Name the ranks that a signal killed, if any: their partners only see broken connections."""
    end = monotonic() + DYING_S
    for rank in ranks:
        rank.process.join(max(0.0, end - monotonic()))
    codes = {rank.number: rank.process.exitcode for rank in ranks}
    dead = {number: -code for number, code in codes.items() if code is not None and code < 0}
    return {
        number: f"rank {number} was ended by {signal.Signals(code).name}{LIKELY.get(code, '')}"
        for number, code in dead.items()
    }
