"""Run local ranks, name their faults, and answer these by the policy of the run.

The ranks of an attempt are processes of this host. They tell faults that they find themselves; that one has died or
hangs is seen here. Under ``restart`` and ``replan`` a fault ends the attempt: all ranks are ended, and new ones go on
from the newest checkpoint that is whole and older than the fault.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing import connection
from pathlib import Path
from time import sleep, time
from typing import Any

import torch.distributed as dist

from meshwright.errors import InfeasibleError, InputError, RunError
from meshwright.runtime.faults.fault import WARNINGS, Fault
from meshwright.runtime.faults.fault_dump import DUMP_SIGNAL
from meshwright.runtime.faults.injection import without_fired
from meshwright.runtime.launch.forked_ranks import DYING_S, Rank, Report, deaths, heard, started_ranks
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.recovery.checkpoint_choice import checkpoint_before
from meshwright.runtime.recovery.fault_policy import FaultPolicy
from meshwright.runtime.recovery.fault_stop import FaultStopError
from meshwright.runtime.recovery.named_faults import hang_faults, kill_faults, with_detection_time
from meshwright.runtime.recovery.progress_board import (
    NOT_BEGUN,
    Progress,
    ProgressBoard,
    ProgressRow,
    StepTaken,
    hanging_ranks,
)
from meshwright.runtime.recovery.returned_devices import ReturnedDevices, rendezvous
from meshwright.runtime.recovery.run_log import logged_steps, number
from meshwright.runtime.training.job_and_outcome import METRICS, PLAN, Members, Outcome, Training

GLANCE_S = 0.25
"""Seconds between two looks at the progress of ranks that say nothing."""
DUMP_S = 0.1
"""Seconds that living ranks have to write what they did last."""
Work = Callable[[Training, Place, dist.Store, Report, ProgressRow], Outcome]
"""The work of a rank of an attempt."""
Replan = Callable[[int, Path | None], Training]
"""Plans anew for a number of devices, to go on from a checkpoint. Raises InfeasibleError."""


class RanksAtFaultError(Exception):
    """Faults that end an attempt, and the text of the error if the run stops."""

    def __init__(self, faults: Sequence[Fault], text: str) -> None:
        super().__init__(text)
        self.faults, self.text = tuple(faults), text


@dataclass
class Supervisor:
    """The attempts of a run. ``say`` prints a sentence for the user.

    ``interrupted``: a signal has asked the run to stop. ``facts`` are what commands must have alike that bring devices
    back.
    """

    training: Training
    work: Work
    replan: Replan
    say: Callable[[str], None]
    interrupted: Callable[[], bool] = lambda: False
    facts: Mapping[str, object] = field(default_factory=dict)
    devices: ReturnedDevices | None = None
    leave: Callable[[], None] = lambda: None
    faults: list[Fault] = field(default_factory=list)
    members: list[Members] = field(default_factory=list)
    _begin: Path | None = None
    _first: int | None = None
    _named_s: float = 0.0
    _planned_for: int = 0

    def __post_init__(self) -> None:
        self._planned_for = self.training.job.program.parts.ranks

    def run(self) -> Outcome:
        """Return the outcome of the attempt that has ended well. Raises FaultStopError, and RunError of other kinds."""
        if self.training.options.on_fault != "replan":
            return self._attempts()
        with rendezvous(self.training, self.facts) as (self.devices, self.leave):
            return self._attempts()

    def _attempts(self) -> Outcome:
        options = self.training.options
        policy, self._begin = FaultPolicy(options.on_fault, options.max_restarts), self.training.resume
        while True:
            try:
                outcome = _Attempt(self).outcome()
                if not (outcome.stopped and self.grows):
                    return self._whole(outcome)
                self._grow(outcome)
            except RanksAtFaultError as error:
                found = policy.answered(error.faults)
                self.faults += found
                if found[0].action == "stopped":
                    raise FaultStopError(error.text, self.faults, self._members()) from None
                for fault in found:
                    self.say(f"{fault}. The run is {fault.action}.")
                self._go_back(found)

    @property
    def grows(self) -> bool:
        """True if devices have come back that the plan does not use yet, and no signal has asked the run to stop."""
        if self.devices is None or self.interrupted():
            return False
        return self.devices.count > self._planned_for

    def warn(self, fault: Fault) -> None:
        """Keep and print a fault that does not end the run."""
        self.faults.append(fault)
        self.say(f"Warning: {fault}.")

    def step_taken(self) -> None:
        """Note the first step of an attempt: faults that ended the one before are recovered from."""
        self.faults = [
            replace(fault, resumed_s=time() - self._named_s)
            if fault.resumed_s is None and fault.action in ("restarted", "replanned")
            else fault
            for fault in self.faults
        ]

    def name_faults(self) -> None:
        """Note the time at which faults were named."""
        self._named_s = time()

    def without(self, fired: frozenset[int]) -> None:
        """Keep injections that have happened out of the next attempts."""
        options = self.training.options
        options = replace(options, inject=without_fired(options.inject, fired))
        self.training = replace(self.training, options=options)

    def _go_back(self, found: Sequence[Fault]) -> None:
        """Choose checkpoint and plan of the next attempt."""
        step = min(fault.step for fault in found)
        choice = checkpoint_before(self.training.checkpoints, step, self._begin)
        for remark in choice.remarks:
            self.say(remark)
        where = "the begin of the run" if choice.path is None else str(choice.path)
        self.training = replace(self.training, resume=choice.path, goes_on=f"Goes on from {where}.")
        lost = {fault.rank for fault in found if fault.kind in ("kill", "hang")}
        if self.devices is None or not lost:  # all devices are left, and the plan is for them
            return
        try:
            self._plan_for(self.devices.lose(len(lost)), choice.path, choice.step)
        except InfeasibleError as error:
            self.faults = [replace(one, action="stopped") if one in found else one for one in self.faults]
            raise FaultStopError(str(error), self.faults, self._members()) from None

    def _grow(self, outcome: Outcome) -> None:
        """Plan for the devices that have come back, and go on behind the last step."""
        assert self.devices is not None
        step = outcome.first_step + len(outcome.losses)
        self.training = replace(
            self.training, resume=outcome.checkpoint, goes_on=f"Goes on from {outcome.checkpoint}."
        )
        self._plan_for(self.devices.count, outcome.checkpoint, step)

    def _plan_for(self, devices: int, checkpoint: Path | None, step: int) -> None:
        """Take the best plan for a number of devices from a step on. Raises InfeasibleError."""
        other, self._planned_for = self.replan(devices, checkpoint), devices
        training, ranks = self.training, other.job.program.parts.ranks
        self.training = replace(other, options=training.options, goes_on=training.goes_on)
        if (other.plan, other.lists) != (training.plan, training.lists):
            self.members.append(Members(step=step, ranks=ranks, plan=""))
        self.say(f"The plan from step {step} on has {ranks} ranks.")

    def _members(self) -> tuple[Members, ...]:
        """Return the changes of ranks with the paths of their plans; former plans are kept by their last step."""
        output = self.training.options.output
        ends = [*(change.step for change in self.members[1:]), None]
        names = [PLAN if end is None else f"{Path(PLAN).stem}-{end}{Path(PLAN).suffix}" for end in ends]
        return tuple(
            replace(change, plan=str(output / name))
            for change, name in zip(self.members, names, strict=False)
        )

    def _whole(self, last: Outcome) -> Outcome:
        """Return the outcome of all attempts; steps of earlier ones are read from the log."""
        first = last.first_step if self._first is None else self._first
        outcome = replace(last, faults=tuple(self.faults), members=self._members())
        if first >= last.first_step:
            return outcome
        lines = logged_steps(self.training.options.output / METRICS, first)
        steps = [lines[step] for step in sorted(lines)]
        return replace(
            outcome,
            first_step=first,
            losses=tuple(number(line, "loss") for line in steps),
            norms=tuple(number(line, "grad_norm") for line in steps),
            step_times_s=tuple(number(line, "step_time_s") for line in steps),
        )

    def begun(self, first: int) -> None:
        """Note the first step of the first attempt."""
        self._first = first if self._first is None else self._first


@dataclass
class _Attempt:
    """Ranks that run until they are done, or until one of them is at fault."""

    supervisor: Supervisor
    growing: bool = False

    def outcome(self) -> Outcome:
        """Return rank 0's outcome. Raises RanksAtFaultError, InputError, RunError."""
        training = self.supervisor.training
        count = training.job.program.parts.ranks
        self.board = ProgressBoard(count)

        def work(place: Place, store: dist.Store, report: Report) -> Outcome:
            self.supervisor.leave()
            row = self.board.row(place.rank)
            return self.supervisor.work(training, place, store, report, row)

        with started_ranks(work, count) as self.ranks:
            try:
                return self._watched()
            except RanksAtFaultError:
                self.supervisor.without(self.board.fired())
                raise

    def _watched(self) -> Outcome:
        working, value = {rank.pipe: rank for rank in self.ranks}, None
        hang_s = self.supervisor.training.hang_s
        while working:
            for pipe in connection.wait(list(working), timeout=GLANCE_S):
                rank = next(rank for rank in self.ranks if rank.pipe is pipe)
                word, content = heard(rank)
                if word == "told":
                    self._told(content)
                elif word == "done":
                    value = content if rank.number == 0 else value
                    del working[rank.pipe]
                elif word == "refused":
                    raise InputError(content)
                elif word in ("faults", "failed"):
                    self._fail(rank, word, content)
            ended = frozenset(range(len(self.ranks))) - {rank.number for rank in working.values()}
            if self.supervisor.grows and not self.growing:
                self.growing = True
                for rank in working.values():  # they finish their step and save
                    rank.process.terminate()
            hanging = hanging_ranks(self.board.rows(), ended, time(), hang_s)
            if hanging:
                self._raise(hang_faults(self.board.rows(), hanging, time()), "")
        assert isinstance(value, Outcome)
        return value

    def _told(self, subject: object) -> None:
        if isinstance(subject, StepTaken):
            self.supervisor.begun(subject.step)
            self.supervisor.step_taken()
        elif isinstance(subject, Fault):
            self.supervisor.warn(subject)

    def _fail(self, rank: Rank, word: str, content: Any) -> None:
        """Raise what has ended the attempt: faults that ranks tell, a death that others only see as lost messages."""
        dead = deaths(self.ranks)
        told = list(content) if word == "faults" else []
        others = [other for other in self.ranks if other is not rank and other.number not in dead]
        told += [fault for other in others for fault in _faults_of(other)]
        if told:
            self._raise(_each_once(told), "; ".join(str(fault) for fault in _each_once(told)))
        if dead:
            rows = self.board.rows()
            self._raise(kill_faults(rows, dead, time()), "; ".join(dead.values()))
        hanging = self._late()
        if hanging:
            self._raise(hang_faults(self.board.rows(), hanging, time()), str(content))
        raise RunError(str(content))

    def _late(self) -> list[int]:
        """Return ranks that others have waited for until their messages timed out."""
        limit = self.supervisor.training.job.timeout_s
        running = frozenset(rank.number for rank in self.ranks if rank.process.exitcode is not None)
        return hanging_ranks(self.board.rows(), running, time(), limit - DYING_S)

    def _raise(self, faults: Sequence[Fault], text: str) -> None:
        self.supervisor.name_faults()
        rows, now_s = self.board.rows(), time()
        self._dump(rows)
        timed = [with_detection_time(fault, rows, now_s) for fault in faults]
        raise RanksAtFaultError(timed, text or "; ".join(map(str, timed)))

    def _dump(self, rows: Sequence[Progress]) -> None:
        """Signal living ranks to write their last operations. Ranks before their first step have no handler."""
        for rank in self.ranks:
            if rank.process.is_alive() and rows[rank.number].step != NOT_BEGUN and rank.process.pid:
                with suppress(ProcessLookupError):
                    os.kill(rank.process.pid, DUMP_SIGNAL)
        sleep(DUMP_S)


def _faults_of(rank: Rank) -> Iterator[Fault]:
    """Yield the faults that end a run in the unread messages of a rank."""
    while rank.pipe.poll():
        word, content = heard(rank)
        if word == "faults":
            yield from content
        elif word != "told":
            return


def _each_once(faults: Sequence[Fault]) -> list[Fault]:
    """Return each fault once: all ranks may tell the same one."""
    found = {(fault.kind, fault.rank, fault.peer): fault for fault in reversed(faults)}
    assert not WARNINGS & {kind for kind, *_ in found}
    return list(reversed(found.values()))
