"""Addresses HOST:PORT that users give."""

import re
from typing import NamedTuple

from meshwright.errors import InputError, Problem

FORM = re.compile(r"(?P<host>[\w.-]+|\[[0-9a-fA-F:.]+\]):(?P<port>\d{1,5})")
MAX_PORT = 65535
LOOPBACK = "127.0.0.1"


class Address(NamedTuple):
    """A host's name or number, and a port; port 0 lets the system choose one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def network_address(text: str, field: str) -> Address:
    """Return the address that a text names. Raises InputError."""
    match = FORM.fullmatch(text)
    if match is None or int(match["port"]) > MAX_PORT:
        rule = f"must be HOST:PORT with a port from 0 to {MAX_PORT}"
        raise InputError(Problem(field, text, rule, f"{LOOPBACK}:29500"))
    return Address(match["host"].strip("[]"), int(match["port"]))
