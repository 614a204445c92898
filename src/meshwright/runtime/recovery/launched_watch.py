"""Watch ranks that a launcher started: each tells the others what it does, through their store.

Every rank writes its progress every ``BEAT_S`` seconds, in a thread with a connection of its own, and looks whether a
rank has failed. The first rank names ranks that hang. Once a connection between ranks has broken, it also names those
whose progress has stopped coming: their process is gone. A busy host that only delays messages ends no run. Then all
cut their connections, so that nobody waits for the rank at fault, and end with its name; launchers start such a job
again.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from threading import Event, Thread
from time import sleep, time
from typing import Any

import torch.distributed as dist

from meshwright.errors import RunError
from meshwright.runtime.faults.fault import Fault, FaultError
from meshwright.runtime.launch.cut_connections import open_sockets, shut_down
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.launch.rendezvous import FAILURE, first_failure
from meshwright.runtime.recovery.fault_stop import FaultStopError
from meshwright.runtime.recovery.members.member_requests import BEAT_S, LOST_S
from meshwright.runtime.recovery.named_faults import hang_faults, kill_faults
from meshwright.runtime.recovery.progress_board import NOT_BEGUN, Progress, ProgressBoard, hanging_ranks

GLANCE_S = 0.1
"""Seconds between two looks at the store."""
BROKEN, FAULTS = "connection broken", "faults"
"""Keys of the store: a rank has lost a connection to another; the faults that ended the run."""
DONE = NOT_BEGUN - 1
"""The step of a rank that has ended well."""


class LaunchedWatch:
    """The thread of one rank; ``board`` has the rank's own row."""

    def __init__(self, store: dist.Store, place: Place, board: ProgressBoard, hang_s: float) -> None:
        self._store: dist.Store = store.clone()  # type: ignore[attr-defined]  # missing in torch's stubs
        self._place, self._board, self._hang_s = place, board, hang_s
        self._before, self._end, self._beats = open_sockets(), Event(), 0
        self._seen: dict[int, tuple[int, float]] = {}
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """End the watch of a rank that has done its work."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._beat(self._board.progress(self._place.rank))
            while not self._end.wait(BEAT_S):
                self._beat(self._board.progress(self._place.rank))
                if self._place.rank == 0:
                    self._judge()
                if self._store.check([FAILURE]):
                    self._cut()
                    return
            self._beat(replace(self._board.progress(self._place.rank), step=DONE))
        except RuntimeError:  # the store is gone, and the run with it
            return

    def _beat(self, own: Progress) -> None:
        self._beats += 1
        data = asdict(own) | {"fired": [], "age_s": time() - own.since_s, "beat": self._beats}
        self._store.set(_key(self._place.rank), json.dumps(data))

    def _judge(self) -> None:
        """Write faults of ranks into the store, if there are any."""
        told = self._told()
        if len(told) < self._place.ranks:  # not all have begun
            return
        now_s = time()
        silent = self._silent(told, now_s)
        rows = [_progress(of, self._seen[rank][1]) for rank, of in enumerate(told)]
        ended = frozenset(rank for rank, row in enumerate(rows) if row.step == DONE)
        gone = [rank for rank in silent if rank not in ended] if self._store.check([BROKEN]) else []
        reached = min((row.step for rank, row in enumerate(rows) if rank not in {*gone, *ended}), default=0)
        for rank in gone:  # the others wait for it in a step that it has begun since it last told
            rows[rank] = replace(rows[rank], step=max(rows[rank].step, reached))
        how = f"its process has told nothing for {LOST_S:.0f} s"
        faults = kill_faults(rows, dict.fromkeys(gone, how), now_s)
        hanging = hanging_ranks(rows, ended, now_s, self._hang_s)
        faults = faults or hang_faults(rows, hanging, now_s)
        if faults:
            tell_faults(self._store, faults)
            first_failure(self._store, "; ".join(map(str, faults)))

    def _told(self) -> list[dict[str, Any]]:
        keys = [_key(rank) for rank in range(self._place.ranks)]
        return [json.loads(self._store.get(key)) for key in keys] if self._store.check(keys) else []

    def _silent(self, told: Sequence[dict[str, Any]], now_s: float) -> list[int]:
        """Return the ranks whose messages have stopped."""
        for rank, of in enumerate(told):
            if self._seen.get(rank, (0, 0.0))[0] != of["beat"]:
                self._seen[rank] = of["beat"], now_s
        return [rank for rank, (_, seen_s) in self._seen.items() if now_s - seen_s > LOST_S]

    def _cut(self) -> None:
        for descriptor, inode in open_sockets().items():
            if self._before.get(descriptor) != inode:
                shut_down(descriptor)


@contextmanager
def watched(store: dist.Store, place: Place, board: ProgressBoard, hang_s: float) -> Iterator[None]:
    """Watch a rank's work inside the block. Raises FaultStopError for faults that end it on any rank."""
    watch = LaunchedWatch(store, place, board, hang_s)
    try:
        yield
    except FaultError as error:
        tell_faults(store, error.faults)
        first_failure(store, str(error))
        raise FaultStopError(str(error), [replace(of, action="stopped") for of in error.faults]) from None
    except RunError as error:
        # A collective that has failed may be the fault of its partners.
        if isinstance(error.__cause__, RuntimeError) and (faults := _faults_of_others(store)):
            raise FaultStopError("; ".join(map(str, faults)), faults) from None
        raise error
    finally:
        watch.end()


def _faults_of_others(store: dist.Store) -> list[Fault]:
    """Return the faults that explain a broken connection: a lost rank is named after its silence."""
    end = time() + LOST_S + 2 * BEAT_S
    try:
        store.set(BROKEN, "")
        while time() < end and not store.check([FAILURE]):
            sleep(GLANCE_S)
        return told_faults(store)
    except RuntimeError:  # the store is gone, and the run with it
        return []


def tell_faults(store: dist.Store, faults: Sequence[Fault]) -> None:
    """Write the faults that end a run into the store, unless others are there."""
    store.compare_set(FAULTS, "", json.dumps([replace(of, action="stopped").to_json() for of in faults]))


def told_faults(store: dist.Store) -> list[Fault]:
    """Return the faults that ranks have written into the store."""
    return [Fault(**of) for of in json.loads(store.get(FAULTS))] if store.check([FAULTS]) else []


def _progress(of: dict[str, Any], seen_s: float) -> Progress:
    """Return a rank's progress by the clock of this host, which saw it at ``seen_s``."""
    own = {name: value for name, value in of.items() if name not in ("age_s", "beat")}
    return Progress(**own | {"fired": frozenset(), "since_s": seen_s - of["age_s"]})


def _key(rank: int) -> str:
    return f"progress of rank {rank}"
