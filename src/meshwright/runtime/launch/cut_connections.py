"""Shut down connections of this process, so that operations that wait on them fail at once.

Gloo has no abort of its own in PyTorch 2.13: ``abort`` and ``shutdown`` of a group return, and its operations wait on.
"""

import os
import socket
from contextlib import suppress
from pathlib import Path

DESCRIPTORS = Path("/proc/self/fd")


def open_sockets() -> dict[int, str]:
    """Return the sockets of this process: the descriptor, and the system's name of what it stands for."""
    found = {}
    for entry in DESCRIPTORS.iterdir() if DESCRIPTORS.is_dir() else ():
        with suppress(OSError):
            name = os.readlink(entry)
            if name.startswith("socket:"):
                found[int(entry.name)] = name
    return found


def shut_down(descriptor: int) -> None:
    """Shut a connection down; listening sockets stay, since gloo aborts without its own."""
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as copy:
        stream = copy.family in (socket.AF_INET, socket.AF_INET6) and copy.type == socket.SOCK_STREAM
        if stream and not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            copy.shutdown(socket.SHUT_RD)  # a write that fails would leave gloo's operation waiting
