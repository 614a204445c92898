"""Lock the output folder, so that only one run at a time writes into it.

The run locks the file ``lock`` in the folder (flock(2)) and writes its process into it. The system releases the lock
when the last process of a run is gone, however it ended, so no lock is ever stale; the file itself stays. Forked ranks
hold it with their parent: it is released when the last of them has ended. A file system without locks gives no
protection.
"""

import errno
import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import BinaryIO

import torch.distributed as dist

from meshwright.errors import InputError, Problem
from meshwright.runtime.launch.launcher_environment import Place

LOCK = "lock"
PATIENCE_S, PAUSE_S = 1.0, 0.05
"""Seconds to wait, and between attempts, for the ranks of a run that was killed a moment ago."""
HELD = (errno.EAGAIN, errno.EACCES)
MAX_HOLDER_BYTES = 300
ANSWER = "lock of the output folder"


@contextmanager
def sole_writer(output: Path) -> Iterator[None]:
    """Hold the folder's lock.

    Raises InputError, naming the process, if another run holds it or it cannot be written.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
        file = open(output / LOCK, "a+b")  # noqa: SIM115 - closed below
    except OSError as error:
        rule = f"cannot be written: {error.strerror or error}"
        raise InputError(Problem("output", str(output), rule, "a folder of this user")) from None
    with file:
        _take(file, output)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n".encode())
        file.flush()
        yield


@contextmanager
def sole_writers(place: Place, store: dist.Store, output: Path) -> Iterator[None]:
    """Hold the folder's lock for launched ranks: rank 0 locks, and all are refused if that fails."""
    if place.rank:
        refusal = store.get(ANSWER).decode()
        if refusal:
            raise InputError(_problem(output, refusal))
        yield
        return
    with ExitStack() as held:
        try:
            held.enter_context(sole_writer(output))
        except InputError as error:
            store.set(ANSWER, error.problems[0].rule)
            raise
        store.set(ANSWER, "")
        yield


def _take(file: BinaryIO, output: Path) -> None:
    end = monotonic() + PATIENCE_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except OSError as error:
            if error.errno not in HELD:
                return
        if monotonic() > end:
            raise InputError(_problem(output, f"another run writes here: {_holder(file)}"))
        sleep(PAUSE_S)


def _holder(file: BinaryIO) -> str:
    file.seek(0)
    text = file.read(MAX_HOLDER_BYTES).decode(errors="replace").strip()
    return text or "it has not said which"


def _problem(output: Path, rule: str) -> Problem:
    return Problem("output", str(output), rule, "wait for its end, or name another folder with --out")
