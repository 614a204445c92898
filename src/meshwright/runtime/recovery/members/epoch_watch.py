"""Watch an epoch: learn that it changes, and cut connections that would wait for a lost member."""

from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from time import sleep

from meshwright.errors import MeshwrightError
from meshwright.runtime.launch.cut_connections import open_sockets, shut_down
from meshwright.runtime.recovery.members.rendezvous_store import ServerClient

GLANCE_S = 0.05
"""Seconds between two looks at whether connections may be cut."""


class EpochWatch:
    """A thread that asks the server about an epoch until it ends.

    ``pending`` is called once if members want to join. If the epoch breaks, the connections that this process opened
    since the watch began are shut down, so that operations on them fail at once; it is asked ``may_cut`` before.
    """

    def __init__(
        self, client: ServerClient, epoch: int, pending: Callable[[], None], may_cut: Callable[[], bool]
    ) -> None:
        self._client, self._epoch, self._pending, self._may_cut = client, epoch, pending, may_cut
        self._before, self._lock, self._ended = open_sockets(), Lock(), False
        Thread(target=self._run, daemon=True).start()

    def cut(self) -> None:
        """Shut down the epoch's connections, for operations of this rank that nobody waits for any longer."""
        with self._lock:
            self._shut_all()

    def end(self) -> None:
        """Cut nothing any longer: the epoch's connections are closed."""
        with self._lock:
            self._ended = True

    def _run(self) -> None:
        known = False
        with suppress(MeshwrightError, RuntimeError):
            while True:
                word = self._client.request("watch", epoch=self._epoch, known=known)
                if word == "pending":
                    known = True
                    self._pending()
                    continue
                while word == "broken" and not self._cut():
                    sleep(GLANCE_S)
                return

    def _cut(self) -> bool:
        """Shut connections down if that may be; return false where it is to be tried again."""
        with self._lock:
            if not self._ended and not self._may_cut():
                return False
            if not self._ended:
                self._shut_all()
            return True

    def _shut_all(self) -> None:
        for descriptor, inode in open_sockets().items():
            if self._before.get(descriptor) != inode and descriptor not in self._client.descriptors:
                shut_down(descriptor)
