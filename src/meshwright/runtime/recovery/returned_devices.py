"""Take devices back into a run under ``replan``: commands offer them with ``--join`` on the host of the run.

The ranks on them are children of the first command, so others offer only devices of the same host. Under ``shrink``
ranks join themselves (``members/``).
"""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from time import sleep
from typing import Any

from meshwright.errors import InputError, Problem, RunError
from meshwright.runtime.launch.network_address import LOOPBACK, network_address
from meshwright.runtime.recovery.members.member_requests import BEAT_S
from meshwright.runtime.recovery.members.rendezvous_server import RendezvousServer
from meshwright.runtime.recovery.members.rendezvous_store import ServerClient
from meshwright.runtime.recovery.members.run_token import ADDRESS, made_token, print_address
from meshwright.runtime.training.job_and_outcome import Training


@dataclass
class ReturnedDevices:
    """The available devices of a run: ``most`` at its begin, without lost ones until a command offers them again."""

    most: int
    facts: Mapping[str, object]
    count: int = 0
    ended: str = ""
    _lock: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.count = self.most

    def lose(self, lost: int) -> int:
        """Count devices as lost, and return how many are left."""
        with self._lock:
            self.count -= lost
            return self.count

    def answer(self, request: Mapping[str, Any], connection: int) -> object:
        """Return the answer to a request; None for an unknown one."""
        match request["op"]:
            case "facts":
                return self.facts
            case "offer":
                return self._offer(str(request["host"]))
            case "beat":
                return {"ended": self.ended}
        return None

    def closed(self, connection: int) -> None:
        """Do nothing: the devices of a command that has ended stay with the run until one of them is lost."""

    def _offer(self, host: str) -> object:
        """Take the devices that the run lacks."""
        own = socket.gethostname()
        if host != own:
            return {"refused": f"a run under replan takes devices of its own host alone: {own}"}
        with self._lock:
            missing = self.most - self.count
            if not missing:
                return {"refused": f"the run lacks none of its {self.most} devices"}
            self.count = self.most
            return {"devices": missing}


@contextmanager
def rendezvous(
    training: Training, facts: Mapping[str, object]
) -> Iterator[tuple[ReturnedDevices, Callable[[], None]]]:
    """Listen for returned devices inside the block; yield them, and what forked ranks call to leave the address."""
    options, output = training.options, training.options.output
    token, origin = made_token(output)
    server = RendezvousServer(network_address(options.listen or f"{LOOPBACK}:0", "listen"), token)
    devices = ReturnedDevices(training.job.program.parts.ranks, facts)
    try:
        server.serve(devices)
        (output / ADDRESS).write_text(f"{server.address}\n", encoding="ascii")
        print_address(server.address, token, origin)
        yield devices, server.leave
    finally:
        devices.ended = "the run has ended"
        server.close()
        (output / ADDRESS).unlink(missing_ok=True)


def offer_devices(client: ServerClient) -> int:
    """Give a run the devices that it lacks, wait for its end, and return their number. Raises InputError."""
    answer = client.request("offer", host=socket.gethostname())
    if "refused" in answer:
        raise InputError(Problem("join", None, answer["refused"], "--on-fault shrink, or wait"))
    try:
        while not client.request("beat")["ended"]:
            sleep(BEAT_S)
    except RunError:  # the first command has closed its address
        pass
    return int(answer["devices"])
