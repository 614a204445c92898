"""Connections between processes that prove to each other that they know a token.

Both ends of a connection challenge the other by HMAC (``multiprocessing.connection``): the token itself is never sent.
What follows is bytes, not pickled objects, and is not encrypted. A peer that is gone without a word is noticed by
keep-alive messages of TCP.
"""

import os
import socket
from contextlib import suppress
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge

from meshwright.runtime.launch.network_address import Address

BACKLOG = 128
CONNECT_S = 10.0
"""Seconds to wait for an address that does not answer."""
KEEP_ALIVE = {"TCP_KEEPIDLE": 2, "TCP_KEEPINTVL": 2, "TCP_KEEPCNT": 3}
"""Seconds of silence before a message, seconds between two, and how many unanswered ones end a connection."""


class Listening:
    """A listening address. Raises OSError if it cannot be had."""

    def __init__(self, address: Address) -> None:
        family = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0][0]
        self._socket = socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)
        self.address = Address(*self._socket.getsockname()[:2])

    def accept(self) -> Connection:
        """Return the next connection, whose other end has proved nothing yet. Raises OSError if closed."""
        return _connection(self._socket.accept()[0])

    def close(self) -> None:
        """Stop listening, also where a thread waits for a connection."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def leave(self) -> None:
        """Close a forked process's copy; the parent goes on listening."""
        self._socket.close()


def connect(address: Address, token: bytes) -> Connection:
    """Return a connection to a listening address. Raises AuthenticationError, OSError, EOFError."""
    connection = _connection(socket.create_connection((address.host, address.port), CONNECT_S))
    try:
        answer_challenge(connection, token)
        deliver_challenge(connection, token)
    except BaseException:
        connection.close()
        raise
    return connection


def check_other_end(connection: Connection, token: bytes) -> None:
    """Raise AuthenticationError if the other end of an accepted connection does not know the token."""
    deliver_challenge(connection, token)
    answer_challenge(connection, token)


def end(connection: Connection) -> None:
    """End a connection for the thread that waits for its next message, which then closes it."""
    with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as copy:
        copy.shutdown(socket.SHUT_RDWR)


def _connection(opened: socket.socket) -> Connection:
    opened.settimeout(None)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return Connection(opened.detach())
