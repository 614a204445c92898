"""One member's part of one epoch: its rank, the steps that it takes, and what it carries over to the next epoch."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch.distributed as dist
from rich.console import Console

from meshwright.runtime.checkpoint import restore_checkpoint
from meshwright.runtime.data.open_data import TrainingData
from meshwright.runtime.executor.interpreter import finish_validation
from meshwright.runtime.executor.rank import Rank, rank_of
from meshwright.runtime.faults.injection import without_fired
from meshwright.runtime.launch.forked_ranks import Report
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.recovery.members.epoch_end import MemberStopping
from meshwright.runtime.recovery.members.interruptible_wait import InterruptibleWait
from meshwright.runtime.recovery.members.kept_states import (
    KeptStates,
    in_flight,
    kept_states,
    restore_states,
)
from meshwright.runtime.recovery.members.member_table import Result
from meshwright.runtime.recovery.progress_board import ProgressRow
from meshwright.runtime.recovery.run_log import logged_steps
from meshwright.runtime.training.job_and_outcome import METRICS, Outcome, Training
from meshwright.runtime.training.loop import Loop
from meshwright.runtime.training.stop_signals import stopping
from meshwright.runtime.training.train_rank import initial_tensors, trained


@dataclass(frozen=True)
class MemberInputs:
    """Inputs of a member in every epoch; ``local_rank`` is its number among those of its command."""

    local_rank: int
    data: TrainingData
    console: Console | None
    row: ProgressRow
    report: Report
    store: dist.Store
    early: Sequence[int] = ()


@dataclass
class CarriedOver:
    """A member's states at the end of an epoch, if they are whole, and the results of its steps."""

    kept: KeptStates | None = None
    results: dict[int, Result] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the entries of a report."""
        last = self.results[max(self.results)] if self.results else None
        return {"step": None if self.kept is None else self.kept.step, "result": last}


@dataclass
class RankEpoch:
    """A member's part of an epoch; ``order`` is the server's, ``training`` that of the number of replicas."""

    inputs: MemberInputs
    carried: CarriedOver
    order: Mapping[str, Any]
    training: Training
    loop: Loop | None = None
    heard: MemberStopping | None = None
    pending: bool = False
    snapshot: KeptStates | None = None
    waits: InterruptibleWait | None = None

    def run(self) -> Outcome:
        """Run the steps that are left. Raises MembershipChange, FaultError, InputError, RunError."""
        inputs, order = self.inputs, self.order
        goes_on = order["source"] is not None
        options = self.training.options
        options = replace(options, inject=without_fired(options.inject, order["fired"]))
        training = replace(self.training, options=options, goes_on="" if goes_on else self.training.goes_on)
        place = Place(int(order["rank"]), int(order["ranks"]), inputs.local_rank, "local")
        store = dist.PrefixStore(f"epoch-{order['epoch']}", inputs.store)
        checkpoint = None if order["checkpoint"] is None else Path(order["checkpoint"])
        tensors = initial_tensors(training, resumed=goes_on or checkpoint is not None)
        program = training.job.program
        with (
            stopping(store, program, place.rank, announce=False, early=inputs.early) as stop,
            rank_of(training.job, place, store, tensors) as rank,
        ):
            if goes_on:
                kept = self.carried.kept if order["own"] else None
                restore_states(rank, kept, int(order["step"]), int(order["source"]), order["former"])
            elif checkpoint is not None:
                restore_checkpoint(checkpoint, rank)
            self.heard = MemberStopping(stop, store, program, place.rank)
            self.heard.change.requested = self.pending
            return trained(
                rank,
                training,
                inputs.data,
                inputs.console,
                self.heard,
                store,
                checkpoint,
                inputs.report,
                inputs.row,
                self._prepare,
            )

    def request_change(self) -> None:
        """Ask all ranks to end the epoch behind a step."""
        self.pending = True
        if self.heard is not None:
            self.heard.change.requested = True

    def may_cut(self) -> bool:
        """Note that a member was lost; return whether this rank's connections may be cut for it."""
        if self.heard is not None:
            self.heard.broken = True
        return self.heard is None or not self.heard.apart

    @property
    def stuck(self) -> list[object]:
        """The groups of an operation that was given up, which must be kept; empty if none was."""
        if self.waits is None or self.loop is None or not self.waits.given_up:
            return []
        return [self.loop.rank.communicator.groups, dist.group.WORLD]

    def end(self) -> None:
        """Let the epoch's own thread end."""
        if self.waits is not None:
            self.waits.end()

    def carry_over(self) -> None:
        """Keep the states and results of an epoch that has begun its steps."""
        if self.loop is not None and self.heard is not None:
            self.carried.kept = self._kept(self.loop.rank, self.heard)
            self.carried.results |= {of[0]: of for of in self._results(self.loop, self.heard)}

    def _kept(self, rank: Rank, heard: MemberStopping) -> KeptStates | None:
        states = rank.interpreter.states
        if heard.leaves:
            finish_validation(rank.interpreter)
            states.synchroniser.settle()
            return kept_states(rank)
        if in_flight(rank) or (rank.job.program.synchronise and not heard.between):
            return self.snapshot
        return None if heard.updating or not states.settled else kept_states(rank)

    def _results(self, loop: Loop, heard: MemberStopping) -> Iterator[Result]:
        """Yield the results of the steps that this rank has taken in the epoch."""
        for at, found in enumerate(zip(loop.losses, loop.norms, loop.times_s, strict=False)):
            yield loop.first + at, *found
        states, unknown = loop.rank.interpreter.states, loop.first + len(loop.losses)
        if states.optimizer.step > unknown and states.result is not None:
            yield unknown, states.result.loss, states.result.norm, perf_counter() - heard.begun_s

    def _prepare(self, loop: Loop) -> None:
        """Follow the loop's steps, and make up for what a lost first rank has not written."""
        self.loop, heard, self.carried.kept = loop, self.heard, None
        assert heard is not None
        rank, states = loop.rank, loop.rank.interpreter.states
        copied = states.before_step

        def before_update() -> None:
            copied()
            heard.updating = True

        states.before_step = before_update
        self.waits = InterruptibleWait(lambda: heard.broken)
        rank.communicator.groups.wait = self.waits.wait
        if rank.job.program.synchronise:
            heard.meets, heard.before = partial(_meets_others, rank), partial(self._copy, rank)
        if loop.log is not None:
            self._log_missing(loop)
        if self.order["source"] is not None and states.optimizer.step >= self.training.options.steps:
            loop.save()

    def _copy(self, rank: Rank) -> None:
        """Copy the states before a step whose exchange may fail halfway."""
        rank.interpreter.states.synchroniser.settle()
        self.snapshot = kept_states(rank, copies=True)

    def _log_missing(self, loop: Loop) -> None:
        """Log earlier steps that the rank which logged until now has not."""
        first = loop.first = loop.rank.interpreter.states.optimizer.step
        told = {int(step): (step, *values) for step, *values in self.order["results"]}
        known = {step: of for step, of in {**told, **self.carried.results}.items() if step < first}
        there = logged_steps(self.training.options.output / METRICS, min(known, default=first))
        for step in sorted(known.keys() - there.keys()):
            loop.log_step(*known[step])


def _meets_others(rank: Rank, step: int) -> bool:
    """Return whether islands exchange behind a step; ranks of other plans meet in every one."""
    periods = rank.interpreter.states.synchroniser.periods.values()
    return not rank.job.program.loose or any(of.exchanges_at(step + 1) for of in periods)
