"""Train as a member of a run: epoch after epoch, as the rank that the server says, with states kept in memory."""

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

import torch.distributed as dist
from rich.console import Console

from meshwright.errors import InputError, RunError
from meshwright.runtime.data.open_data import TrainingData
from meshwright.runtime.faults.fault import Fault, FaultError
from meshwright.runtime.launch.forked_ranks import Report
from meshwright.runtime.launch.network_address import Address
from meshwright.runtime.recovery.members.epoch_end import MembershipChange
from meshwright.runtime.recovery.members.epoch_watch import EpochWatch
from meshwright.runtime.recovery.members.rank_epoch import CarriedOver, MemberInputs, RankEpoch
from meshwright.runtime.recovery.members.rendezvous_store import RendezvousStore, ServerClient
from meshwright.runtime.recovery.progress_board import ProgressRow, StepTaken
from meshwright.runtime.training.job_and_outcome import Outcome, Training

INTERFACE = "GLOO_SOCKET_IFNAME"
"""Where gloo listens; else at the address of the host's name, which others can reach."""


@dataclass
class MemberRank:
    """One member's part of a run. ``local_rank`` is its number among those of its command, ``number`` that in the run.

    ``training_of`` has the plan of a number of replicas; ``early`` are signals received before the start. ``stuck``
    keeps process groups whose operations were given up.
    """

    client: ServerClient
    number: int
    local_rank: int
    training_of: Callable[[int], Training]
    data: TrainingData
    console: Console | None
    row: ProgressRow
    early: Sequence[int] = ()
    carried: CarriedOver = field(default_factory=CarriedOver)
    stuck: list[object] = field(default_factory=list)

    def run(self) -> dict[str, Any]:
        """Run epochs until the run is done, and return its summary; an empty one where this member has no place left.

        Raises InputError and RunError.
        """
        listen_on(self.client.address)
        store = RendezvousStore(
            self.client
        )  # kept here: a store with a prefix does not keep its Python part alive
        inputs = MemberInputs(
            self.local_rank, self.data, self.console, self.row, Report(self._tell), store, self.early
        )
        report: Mapping[str, Any] = {}
        while True:
            order = self.client.request(
                "next", member=self.number, report={**self.carried.to_json(), **report}
            )
            _leave_groups()
            if "failed" in order:
                raise RunError(order["failed"])
            if "released" in order or "finished" in order:
                return {}
            epoch = RankEpoch(inputs, self.carried, order, self.training_of(int(order["replicas"])))
            outcome, report = self._run(epoch)
            if outcome is not None:
                summary = summary_of(outcome)
                self.client.request("done", member=self.number, summary=summary)
                return summary

    def _run(self, epoch: RankEpoch) -> tuple[Outcome | None, Mapping[str, Any]]:
        """Return the outcome of the run, or what to report of how this epoch has ended."""
        watch = EpochWatch(self.client, int(epoch.order["epoch"]), epoch.request_change, epoch.may_cut)
        try:
            return epoch.run(), {}
        except MembershipChange:
            epoch.carry_over()
            with suppress(RuntimeError):
                dist.barrier()  # no rank may close a connection that another still uses
            return None, {}
        except (InputError, RunError, RuntimeError) as error:
            epoch.carry_over()
            watch.cut()
            return None, _ending(error)
        finally:
            watch.end()
            epoch.end()
            self.stuck += epoch.stuck

    def _tell(self, message: tuple[str, object]) -> None:
        """Tell the server of the first step of an epoch, and of faults that the run goes on with."""
        _, subject = message
        if isinstance(subject, StepTaken):
            self.client.request("stepped", step=subject.step)
        elif isinstance(subject, Fault):
            self.client.request("warned", fault=asdict(subject))


def _leave_groups() -> None:
    """Close the connections of an epoch that all ranks have left.

    Not before: where a rank that still waits writes to a closed connection, gloo does not end its operation.
    """
    if dist.is_initialized():
        with suppress(RuntimeError):
            dist.destroy_process_group()


def _ending(error: Exception) -> dict[str, Any]:
    """Return what to report of an error that has ended an epoch."""
    if isinstance(error, FaultError):
        return {"error": str(error), "faults": [asdict(fault) for fault in error.faults]}
    lost = isinstance(error, RuntimeError) or isinstance(error.__cause__, RuntimeError)
    return {"error": str(error), "lost_messages": lost}


def listen_on(address: Address) -> None:
    """Let process groups listen on the loopback interface where the server does; else where their options say."""
    with suppress(OSError, ValueError):
        loopback = socket.gethostbyname(address.host).startswith("127.")
        names = [name for _, name in socket.if_nameindex() if name in ("lo", "lo0")]
        if loopback and names:
            os.environ[INTERFACE] = names[0]


def summary_of(outcome: Outcome) -> dict[str, Any]:
    """Return what the command that reports a run needs of an outcome, as JSON-ready data; steps are in the log."""
    return {
        "device": outcome.device,
        "device_bytes": outcome.device_bytes,
        "memory_bytes": outcome.memory_bytes,
        "stopped": outcome.stopped,
        "checkpoint": None if outcome.checkpoint is None else str(outcome.checkpoint),
        "export": None if outcome.export is None else str(outcome.export),
        "checkpoint_blocked_s": outcome.checkpoint_blocked_s,
        "checkpoint_lasted_s": outcome.checkpoint_lasted_s,
        "dropped": outcome.dropped,
        "first_step": outcome.first_step,
        "held_out": [[one.step, one.loss, one.tokens] for one in outcome.held_out],
    }
