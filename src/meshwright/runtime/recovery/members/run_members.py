"""Run a job whose ranks may be lost and joined: the first command, which serves its members, and commands that join."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

import torch.distributed as dist
from rich.console import Console

from meshwright.errors import InputError, Problem, RunError
from meshwright.runtime.data.open_data import TrainingData
from meshwright.runtime.launch.forked_ranks import Report, started_ranks
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.launch.network_address import LOOPBACK, network_address
from meshwright.runtime.recovery.fault_stop import FaultStopError
from meshwright.runtime.recovery.members.epochs import Epochs
from meshwright.runtime.recovery.members.local_members import LocalMembers
from meshwright.runtime.recovery.members.member_changes import MemberChanges
from meshwright.runtime.recovery.members.member_rank import MemberRank
from meshwright.runtime.recovery.members.member_requests import BEAT_S, MemberRequests
from meshwright.runtime.recovery.members.rendezvous_server import RendezvousServer
from meshwright.runtime.recovery.members.rendezvous_store import ServerClient
from meshwright.runtime.recovery.members.run_token import ADDRESS, made_token, print_address
from meshwright.runtime.recovery.progress_board import ProgressBoard
from meshwright.runtime.recovery.run_log import logged_steps, number
from meshwright.runtime.training.evaluation import HeldOut
from meshwright.runtime.training.job_and_outcome import METRICS, Outcome, Training

TrainingOf = Callable[[int], Training]
"""Returns the training of a number of replicas. Raises InputError where there is no legal plan."""


@dataclass(frozen=True)
class Shrinkable:
    """A plan's number of replicas, and the training of others."""

    replicas: int
    training_of: TrainingOf


def run_members(
    training: Training,
    shrinkable: Shrinkable,
    data: TrainingData,
    console: Console | None,
    early: Sequence[int] = (),
) -> Outcome:
    """Train on local ranks that may be lost, and let others join; return the outcome of the whole run.

    ``training`` is that of the run's begin. ``early`` are signals received before the start.
    Raises InputError and RunError.
    """
    options, output = training.options, training.options.output
    token, origin = made_token(output)
    server = RendezvousServer(network_address(options.listen or f"{LOOPBACK}:0", "listen"), token)
    replicas = shrinkable.replicas
    of_replicas = _with_first(training, shrinkable)

    def say(text: str) -> None:
        if console is not None:
            console.print(text, markup=False, highlight=False, soft_wrap=True)

    board = ProgressBoard(training.job.program.parts.ranks)

    def work(place: Place, store: dist.Store, report: Report) -> Mapping[str, Any]:
        server.leave()
        client, row = ServerClient(server.address, token, origin), board.row(place.rank)
        return MemberRank(client, place.rank, place.rank, of_replicas, data, console, row, early).run()

    facts = facts_of_run(training, data, replicas)
    epochs = Epochs(
        server.values, of_replicas, replicas, MemberChanges(say), limit_s=training.hang_s, fired=board.fired
    )
    requests = MemberRequests(epochs, facts)
    with started_ranks(work, board.ranks) as ranks:
        try:
            server.serve(requests)
            (output / ADDRESS).write_text(f"{server.address}\n", encoding="ascii")
            print_address(server.address, token, origin)
            _serve(requests, LocalMembers(ranks, board, training.hang_s))
            if epochs.failure:
                raise FaultStopError(epochs.failure, epochs.record.faults, epochs.record.members(output))
            return _outcome(epochs, training)
        finally:
            server.close()
            (output / ADDRESS).unlink(missing_ok=True)


def facts_of_run(training: Training, data: TrainingData, replicas: int) -> dict[str, object]:
    """Return what commands that join take from the run, and must have alike."""
    return {
        "options": training.options.to_json(),
        "precision": training.job.precision,
        "data": dict(data.identity),
        "base": training.base,
        "program": training.job.program.signature(),
        "begun_with": replicas,
    }


def join_run(
    client: ServerClient,
    training: Training,
    shrinkable: Shrinkable,
    data: TrainingData,
    console: Console | None,
) -> Outcome:
    """Begin the ranks that a run lacks of the plan's replicas; return the run's outcome from their first step on.

    ``training`` is that of the plan. Raises InputError if the run lacks none, RunError if these ranks were lost.
    """
    answer = client.request("enter", replicas=shrinkable.replicas)
    if "refused" in answer:
        raise InputError(Problem("join", str(client.address), answer["refused"], "a plan with more replicas"))
    numbers, of_replicas = answer["members"], _with_first(training, shrinkable)
    board = ProgressBoard(len(numbers))

    def work(place: Place, store: dist.Store, report: Report) -> Mapping[str, Any]:
        number, row = numbers[place.rank], board.row(place.rank)
        return MemberRank(client, number, place.rank, of_replicas, data, console, row).run()

    with started_ranks(work, len(numbers)) as ranks:
        summary = _follow(client, numbers, LocalMembers(ranks, board, training.hang_s))
    return _outcome_of(summary, training, int(summary["first_step"]))


def _with_first(training: Training, shrinkable: Shrinkable) -> TrainingOf:
    """Return ``training_of`` that keeps what it has returned, with ``training`` for the run's own replicas."""
    known = {shrinkable.replicas: training}

    def found(count: int) -> Training:
        if count not in known:
            known[count] = replace(shrinkable.training_of(count), resume=training.resume)
        return known[count]

    return found


def _serve(requests: MemberRequests, local: LocalMembers) -> None:
    """Watch local ranks until no member is left at work. Raises InputError of a rank."""
    epochs = requests.epochs
    while not epochs.over:
        for rank, fault in local.losses():
            epochs.lose([rank], fault.evidence, fault)
        for rank in requests.to_end(0):
            local.end(rank)
        requests.tick()


def _follow(client: ServerClient, numbers: Sequence[int], local: LocalMembers) -> Mapping[str, Any]:
    """Send heartbeats and tell of local ranks' faults until all are done; return the run's summary."""
    beat_s = 0.0
    while local.working:
        for rank, fault in local.losses():
            client.request("lost", member=numbers[rank], fault=asdict(fault))
        if local.working and monotonic() - beat_s > BEAT_S:
            beat_s = monotonic()
            answer = client.request("beat")
            for member in answer["end"]:
                local.end(numbers.index(member))
            if answer["failed"]:
                raise RunError(answer["failed"])
    if not local.summary:
        raise RunError(
            "the run goes on without the ranks that joined: they were lost, or no place was left for them"
        )
    return local.summary


def _outcome(epochs: Epochs, training: Training) -> Outcome:
    assert epochs.summary is not None
    record = epochs.record
    first = int(epochs.summary["first_step"]) if record.first_step is None else record.first_step
    outcome = _outcome_of(epochs.summary, training, first)
    return replace(outcome, faults=tuple(record.faults), members=record.members(training.options.output))


def _outcome_of(summary: Mapping[str, Any], training: Training, first: int) -> Outcome:
    """Return a run's outcome; its steps are in the log, which ranks that have died wrote too."""
    lines = logged_steps(training.options.output / METRICS, first)
    steps = [lines[step] for step in sorted(lines)]
    paths = {name: summary[name] and Path(summary[name]) for name in ("checkpoint", "export")}
    held_out = tuple(HeldOut(*one) for one in summary["held_out"])
    return Outcome(
        **{
            **summary,
            **paths,
            "first_step": first,
            "held_out": held_out,
            "losses": tuple(number(line, "loss") for line in steps),
            "norms": tuple(number(line, "grad_norm") for line in steps),
            "step_times_s": tuple(number(line, "step_time_s") for line in steps),
        }
    )
