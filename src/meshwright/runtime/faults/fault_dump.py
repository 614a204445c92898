"""Write what a rank did last when a run meets a fault: ``OUTPUT/faults/rank-R.json``.

A rank writes it when its own part of the run fails, and on SIGUSR2, which the process that supervises ranks sends to
those that are alive. The signal is noticed by a thread, so that a rank writes while it waits for others or hangs.
"""

import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread, current_thread, main_thread
from time import monotonic, time
from typing import Any

FOLDER = "faults"
DUMP_SIGNAL = signal.SIGUSR2


def write_dump(output: Path, rank: int, data: dict[str, Any]) -> Path | None:
    """Write a rank's dump and return its path; None if that is not possible, since a fault must not hide another.

    ``clock`` gives the same moment by both clocks.
    """
    path = output / FOLDER / f"rank-{rank}.json"
    unfinished = path.with_name(f"{path.name}.unfinished")
    whole = {"rank": rank, "clock": {"monotonic_s": monotonic(), "time_s": time()}, **data}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(whole), encoding="utf-8")
        os.replace(unfinished, path)
    except OSError:
        return None
    return path


@contextmanager
def dumps_on_signal(write: Callable[[], object]) -> Iterator[None]:
    """Call ``write`` in a thread whenever the signal arrives inside the block."""
    if current_thread() is not main_thread():  # only the main thread receives signals
        yield
        return
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    handler = signal.signal(DUMP_SIGNAL, lambda number, frame: None)
    wakeup = signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
    Thread(target=_listen, args=(reading, write), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(DUMP_SIGNAL, handler)
        writing.close()


def _listen(reading: socket.socket, write: Callable[[], object]) -> None:
    with suppress(OSError), reading:
        while received := reading.recv(64):
            if DUMP_SIGNAL in received:
                write()
