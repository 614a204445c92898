"""Serve the members of a run: a key-value store for their process groups, and requests of another service.

Members connect as ``token_connection.py`` says, and send JSON only.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection
from threading import Condition, Thread
from time import monotonic
from typing import Any, Protocol

from meshwright.errors import InputError, Problem
from meshwright.runtime.launch.network_address import Address
from meshwright.runtime.recovery.members.token_connection import Listening, check_other_end, end

MAX_MESSAGE_BYTES = 2**26
WRONG = (AuthenticationError, OSError, EOFError, ValueError, KeyError, TypeError)
"""Ends of a connection: another token, the peer's end, and messages that are no requests."""
TEXT = "latin-1"
"""The encoding of values, which are bytes, in JSON."""


class Service(Protocol):
    """Answers requests other than those of the store."""

    def answer(self, request: Mapping[str, Any], connection: int) -> object:
        """Return the answer to a request; may block."""

    def closed(self, connection: int) -> None:
        """Hear that a connection is closed."""


class EndedError(Exception):
    """A wait for keys that will never be set."""


class KeyValues:
    """A key-value store with the semantics of ``torch.distributed.Store``."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._ended: set[str] = set()
        self._changed = Condition()

    def set(self, key: str, value: str) -> None:
        """Set a key."""
        with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    def add(self, key: str, amount: int) -> int:
        """Add to a number, 0 at first, and return the sum."""
        with self._changed:
            total = int(self._values.get(key, "0")) + amount
            self._values[key] = str(total)
            self._changed.notify_all()
            return total

    def compare_set(self, key: str, expected: str, desired: str) -> str:
        """Set a key that has the expected value, or none if that is empty; return the value then."""
        with self._changed:
            there = self._values.get(key)
            if there == expected or (there is None and not expected):
                there = self._values[key] = desired
                self._changed.notify_all()
            return expected if there is None else there

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys are set."""
        with self._changed:
            return all(key in self._values for key in keys)

    def delete(self, key: str) -> bool:
        """Delete a key and return whether it was set."""
        with self._changed:
            return self._values.pop(key, None) is not None

    def count(self) -> int:
        """Return the number of keys."""
        with self._changed:
            return len(self._values)

    def wait(self, keys: Sequence[str], limit_s: float) -> list[str] | None:
        """Return the values of keys once all are set; None after the limit. Raises EndedError."""
        end = monotonic() + limit_s
        with self._changed:
            while not all(key in self._values for key in keys):
                if any(key.startswith(tuple(self._ended)) for key in keys):
                    raise EndedError
                if not self._changed.wait(max(0.0, end - monotonic())):
                    return None
            return [self._values[key] for key in keys]

    def end(self, prefix: str) -> None:
        """Let no one wait any longer for keys that begin with ``prefix``, and forget those."""
        with self._changed:
            self._ended.add(prefix)
            self._values = {key: value for key, value in self._values.items() if not key.startswith(prefix)}
            self._changed.notify_all()


class RendezvousServer:
    """A listening address of the members; ``serve`` begins to accept them, after ranks were forked."""

    def __init__(self, address: Address, token: bytes) -> None:
        """Listen. Raises InputError if the address cannot be had."""
        self.token, self.values = token, KeyValues()
        try:
            self._listening = Listening(address)
        except OSError as error:
            rule = f"cannot listen there: {error.strerror or error}"
            raise InputError(Problem("listen", str(address), rule, f"{address.host}:0")) from None
        self.address = self._listening.address
        self._connections: dict[int, Connection] = {}

    def serve(self, service: Service) -> None:
        """Accept connections in threads."""
        Thread(target=self._accept, args=(service,), daemon=True).start()

    def leave(self) -> None:
        """Close a forked rank's copy of the address."""
        self._listening.leave()

    def close(self) -> None:
        """Close the address and all connections."""
        self._listening.close()
        for connection in list(self._connections.values()):
            end(connection)

    def _accept(self, service: Service) -> None:
        number = 0
        while True:
            try:
                connection = self._listening.accept()
            except OSError:  # closed
                return
            number += 1
            Thread(target=self._serve, args=(connection, number, service), daemon=True).start()

    def _serve(self, connection: Connection, number: int, service: Service) -> None:
        self._connections[number], known = connection, False
        with suppress(*WRONG):
            check_other_end(connection, self.token)
            known = True
            while True:
                request = json.loads(connection.recv_bytes(MAX_MESSAGE_BYTES))
                connection.send_bytes(json.dumps(self._answer(request, number, service)).encode())
        del self._connections[number]
        connection.close()
        if known:
            service.closed(number)

    def _answer(self, request: Mapping[str, Any], number: int, service: Service) -> dict[str, object]:
        """Return ``{"value": …}``, or ``{"error": …}``."""
        values, key = self.values, request.get("key", "")
        try:
            match request["op"]:
                case "set":
                    values.set(key, request["value"])
                    return {"value": None}
                case "add":
                    return {"value": values.add(key, request["amount"])}
                case "compare_set":
                    return {"value": values.compare_set(key, request["expected"], request["desired"])}
                case "check":
                    return {"value": values.check(request["keys"])}
                case "delete":
                    return {"value": values.delete(key)}
                case "count":
                    return {"value": values.count()}
                case "wait":
                    found = values.wait(request["keys"], request["limit_s"])
                    return {"error": "not set in time"} if found is None else {"value": found}
                case _:
                    return {"value": service.answer(request, number)}
        except EndedError:
            return {"error": "the group of these ranks has ended"}
