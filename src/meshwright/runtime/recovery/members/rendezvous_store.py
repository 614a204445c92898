"""Connect to the server of a run's members: requests, and torch's store on top of them."""

import json
import os
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from threading import Lock, local
from typing import Any

import torch.distributed as dist

from meshwright.errors import InputError, Problem, RunError
from meshwright.runtime.launch.network_address import Address
from meshwright.runtime.recovery.members.rendezvous_server import MAX_MESSAGE_BYTES, TEXT
from meshwright.runtime.recovery.members.run_token import VARIABLE
from meshwright.runtime.recovery.members.token_connection import connect

STORE_S = 300.0
"""Seconds that a store waits for a key, unless told otherwise."""


class ServerClient:
    """Connections of this process to the server: one for each thread, so that none waits for another's request."""

    def __init__(self, address: Address, token: bytes, origin: str) -> None:
        """``origin``: where the token is from, for the error about a wrong one."""
        self.address, self._token, self._origin = address, token, origin
        self._of_thread, self._lock = local(), Lock()
        self._descriptors: set[int] = set()

    def request(self, op: str, **fields: object) -> Any:
        """Return the server's answer. Raises RunError if it is gone, DistStoreError for a wait in vain."""
        try:
            connection = self._connection()
            connection.send_bytes(json.dumps({"op": op, **fields}).encode())
            answer = json.loads(connection.recv_bytes(MAX_MESSAGE_BYTES))
        except (OSError, EOFError) as error:
            raise RunError(
                f"the run's first command at {self.address} has ended or cannot be reached"
            ) from error
        if "error" in answer:
            raise dist.DistStoreError(f"{op} {fields.get('keys', '')}: {answer['error']}")
        return answer["value"]

    @property
    def descriptors(self) -> frozenset[int]:
        """The file descriptors of all connections."""
        with self._lock:
            return frozenset(self._descriptors)

    def _connection(self) -> Connection:
        """Return this thread's connection. Raises InputError for a wrong token or address."""
        process, connection = getattr(self._of_thread, "connection", (0, None))
        if process == os.getpid() and connection is not None:
            return connection
        try:
            connection = connect(self.address, self._token)
        except AuthenticationError:
            rule = f"the run at {self.address} has another token than that of {self._origin}"
            suggestion = f"the run's own folder with -o, or its {VARIABLE}"
            raise InputError(Problem(VARIABLE, "not shown", rule, suggestion)) from None
        except (OSError, EOFError) as error:
            rule = f"no run answers there: {getattr(error, 'strerror', None) or type(error).__name__}"
            raise InputError(
                Problem("join", str(self.address), rule, "the address that the run printed")
            ) from None
        self._of_thread.connection = os.getpid(), connection
        with self._lock:
            self._descriptors.add(connection.fileno())
        return connection


class RendezvousStore(dist.Store):
    """The store that process groups of members meet in."""

    def __init__(self, client: ServerClient) -> None:
        super().__init__()
        self._client, self._limit_s = client, STORE_S

    def set(self, key: str, value: str | bytes) -> None:
        """Set a key."""
        self._client.request("set", key=key, value=_text(value))

    def get(self, key: str) -> bytes:
        """Return a value once it is set."""
        return self._client.request("wait", keys=[key], limit_s=self._limit_s)[0].encode(TEXT)

    def add(self, key: str, amount: int) -> int:
        """Add to a number and return the sum."""
        return int(self._client.request("add", key=key, amount=amount))

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are set."""
        return bool(self._client.request("check", keys=list(keys)))

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Return once all keys are set."""
        limit_s = self._limit_s if timeout is None else timeout.total_seconds()
        self._client.request("wait", keys=list(keys), limit_s=limit_s)

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set a key if it has the expected value, and return its value then."""
        fields = {"expected": _text(expected), "desired": _text(desired)}
        return self._client.request("compare_set", key=key, **fields).encode(TEXT)

    def delete_key(self, key: str) -> bool:
        """Delete a key."""
        return bool(self._client.request("delete", key=key))

    def num_keys(self) -> int:
        """Return the number of keys."""
        return int(self._client.request("count"))

    deleteKey, getNumKeys = delete_key, num_keys  # noqa: N815 - by these names stores with a prefix call them

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the limit of waits."""
        self._limit_s = timeout.total_seconds()


def _text(value: str | bytes) -> str:
    return (value.encode() if isinstance(value, str) else bytes(value)).decode(TEXT)
