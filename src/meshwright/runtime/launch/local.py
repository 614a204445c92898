"""Ranks as processes of this host: forked from a parent that has imported torch, meeting through a file.

A fork costs milliseconds where a fresh interpreter needs seconds to import torch; a file needs no free port. The parent
must not have used torch for anything before, since threads and an accelerator's context do not survive a fork.

The first rank that fails, dies or is late ends all of them. Ranks whose parent is gone end by themselves: nothing goes
on writing where a next run may have begun.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread, current_thread, main_thread
from time import monotonic, sleep
from typing import Any, NamedTuple

import torch.distributed as dist

from meshwright.errors import InputError, MeshwrightError, RunError
from meshwright.runtime.launch.environment import Place

Tell = Callable[[str, float], None]
"""Hears what is being done and which part of all is done."""
RankWork = Callable[[Place, dist.Store, Tell], object]

LIKELY: dict[int, str] = {signal.SIGKILL: ", as the system does to processes when memory runs out"}
DYING_S = 0.3
"""A rank's death and the broken connections of its partners are seen within this time of one another."""


class Rank(NamedTuple):
    """A process, its number, and the pipe on which it speaks."""

    number: int
    process: BaseProcess
    pipe: Connection


class Life(NamedTuple):
    """A pipe that the parent alone can write to: its other end is closed when the parent is gone."""

    reading: int
    writing: int


def run_locally(work: RankWork, processes: int, limit_s: float | None, tell: Tell) -> object:
    """``work`` on so many ranks of this host; what rank 0 returns. Raises RunError naming the rank at fault.

    Without ``limit_s`` it may take as long as it takes. An InputError of a rank is raised as it is.
    """
    with TemporaryDirectory(prefix="meshwright-") as folder, _life() as life:
        ranks: list[Rank] = []
        try:
            with _interrupts_later():
                for number in range(processes):
                    place = Place(number, processes, number, "local")
                    ranks.append(_started(work, place, Path(folder) / "store", life))
            return _result(ranks, limit_s, tell)
        finally:
            for rank in ranks:
                rank.process.kill()
            for rank in ranks:
                rank.process.join()
                rank.pipe.close()


@contextmanager
def _life() -> Iterator[Life]:
    life = Life(*os.pipe())
    try:
        yield life
    finally:
        for end in life:
            os.close(end)


@contextmanager
def _interrupts_later() -> Iterator[None]:
    """An interrupt is heard behind this: inside a fork its exception would be raised where Python drops it.

    Blocking the signal would not do: another thread may take it and leave the exception to this one.
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


def _started(work: RankWork, place: Place, store: Path, life: Life) -> Rank:
    """A running rank. The parent's copy of the writing end is closed before the next fork: then its end is seen."""
    reading, writing = get_context("fork").Pipe(duplex=False)
    process = get_context("fork").Process(target=_run, args=(work, place, store, writing, life), daemon=True)
    process.start()
    writing.close()
    return Rank(place.rank, process, reading)


def _run(work: RankWork, place: Place, store: Path, pipe: Connection, life: Life) -> None:
    """The life of a rank: the work, then one word on how it ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's, which ends all ranks
    os.close(life.writing)
    Thread(target=_end_with_parent, args=(life.reading,), daemon=True).start()

    def tell(what: str, part: float) -> None:
        pipe.send(("progress", (what, part)))

    with suppress(BrokenPipeError):
        try:
            pipe.send(("done", work(place, dist.FileStore(str(store), place.ranks), tell)))
        except InputError as error:
            pipe.send(("refused", error.problems))
        except Exception as error:
            named = isinstance(error, MeshwrightError)
            text = str(error) if named else f"rank {place.rank}: {type(error).__name__}: {error}"
            pipe.send(("failed", text))


def _end_with_parent(reading: int) -> None:
    """Wait for the parent's end, which nothing else ends."""
    os.read(reading, 1)
    os._exit(1)


def _result(ranks: Sequence[Rank], limit_s: float | None, tell: Tell) -> object:
    """What rank 0 returned, when all are done."""
    working, value, began = {rank.pipe: rank for rank in ranks}, None, monotonic()
    while working:
        left = None if limit_s is None else max(0.0, began + limit_s - monotonic())
        ready = connection.wait(list(working), timeout=left)
        if not ready:
            late = ", ".join(str(rank.number) for rank in working.values())
            raise RunError(f"not done within {limit_s:.0f} s: rank {late}")
        for pipe in ready:
            rank = next(rank for rank in ranks if rank.pipe is pipe)
            word, said = _heard(rank, ranks)
            if word == "progress":
                tell(*said)
            elif word == "refused":
                raise InputError(said)
            elif word == "failed":
                raise RunError(_death(ranks) or said)
            else:
                value = said if rank.number == 0 else value
                del working[rank.pipe]
    return value


def _heard(rank: Rank, ranks: Sequence[Rank]) -> tuple[str, Any]:
    try:
        word, said = rank.pipe.recv()
        return word, said
    except EOFError:
        return "failed", _death(ranks) or f"rank {rank.number} ended without a word"


def _death(ranks: Sequence[Rank]) -> str:
    """Which rank a signal ended, if one did: its partners only see broken connections."""
    sleep(DYING_S)
    codes = {rank.number: rank.process.exitcode for rank in ranks}
    dead = {number: -code for number, code in codes.items() if code is not None and code < 0}
    return "; ".join(
        f"rank {number} was ended by {signal.Signals(code).name}{LIKELY.get(code, '')}"
        for number, code in dead.items()
    )
