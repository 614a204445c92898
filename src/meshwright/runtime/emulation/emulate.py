"""Emulate a step of a Program on local processes: the real interpreter, with another clock and other passes.

Where steps overlap it is the last of some.

The ranks are forked, run under SCHED_RR where that is allowed, use every connection once, agree on an origin of time,
and execute their lists. A run in which more than one start in twenty was late is repeated once at double scale, and
both are reported; the better of several is never taken. A rank that waits in vain names its action and the ranks
(RunError).
"""

import gc
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

import torch
import torch.distributed as dist

from meshwright.errors import RunError
from meshwright.program.program import Program
from meshwright.program.step_validation import STEADY_STEPS
from meshwright.runtime.emulation.clock import Clock
from meshwright.runtime.emulation.communicator import EmulatedCommunicator, warm
from meshwright.runtime.emulation.exchanges import EmulatedExchanges
from meshwright.runtime.emulation.passes import EmulatedStages
from meshwright.runtime.emulation.record import Emulation, RankRecord, merged
from meshwright.runtime.emulation.scale import (
    SLACK,
    chosen_scale,
    into_real_time,
    real_time_allowed,
    shortest_pass,
)
from meshwright.runtime.emulation.states import EmulatedOptimizer, emulated_plan
from meshwright.runtime.emulation.times import ModelledTimes
from meshwright.runtime.interpreter import Interpreter
from meshwright.runtime.launch.environment import Place
from meshwright.runtime.launch.local import Tell, run_locally
from meshwright.runtime.optimizer import AdamW
from meshwright.runtime.step_states import StepStates
from meshwright.runtime.visit import MicroBatch
from meshwright.runtime.vocabulary.spread import SpreadVocabulary
from meshwright.schedule.action import Action

TOO_LATE = 0.05
"""A share of late starts above which a run is repeated."""
TOLD_EVERY_S = 0.5
GRACE_S = 20.0
"""What a start-up, or a wait beyond the modelled one, may take."""
TIMED_OUT = "Timed out"
"""In gloo's message of an operation that waited in vain."""
OTHERS_FIRST_S = 1.0
Prepare = Callable[[Interpreter], None]


@dataclass(frozen=True)
class EmulatedJob:
    """What all ranks are told. ``prepare`` is done to the interpreter before the step; ``timeout_s`` is how long an
    operation may wait."""

    program: Program
    times: ModelledTimes
    scale: float
    real_time: bool
    timeout_s: float
    prepare: Prepare


def scale_here(program: Program, times: ModelledTimes) -> float:
    """The scale that ``emulate`` would choose on this machine as it is now."""
    return chosen_scale(program, times, real_time=real_time_allowed(), load=os.getloadavg()[0])


def emulate(
    program: Program,
    times: ModelledTimes,
    expected_s: float,
    *,
    tell: Tell = lambda what, part: None,
    prepare: Prepare = lambda interpreter: None,
    scale: float | None = None,
    grace_s: float = GRACE_S,
) -> Emulation:
    """One step of a Program that has been made local (``classes.py``) and should take about ``expected_s``.

    ``scale`` fixes the scale, and then nothing is repeated. Raises RunError where a rank fails or waits in vain.
    """
    real_time = real_time_allowed()
    chosen = scale or scale_here(program, times)

    def run(at_scale: float) -> Emulation:
        waits = grace_s + 2 * at_scale * expected_s * steps_of(program)
        return _run(EmulatedJob(program, times, at_scale, real_time, waits, prepare), tell)

    first = run(chosen)
    if scale is None and first.late_share > TOO_LATE:
        return replace(run(2 * chosen), earlier=(first,))
    return first


def _run(job: EmulatedJob, tell: Tell) -> Emulation:
    load, began = os.getloadavg()[0], monotonic()

    def work(place: Place, store: dist.Store, tell: Tell) -> object:
        return _rank(job, place, store, tell)

    # an operation that waits in vain speaks first, with its name; the processes' limit is for what says nothing
    ranks = run_locally(work, job.program.grid.ranks, 2 * job.timeout_s + GRACE_S, tell)
    assert isinstance(ranks, list)
    return Emulation(tuple(ranks), job.scale, monotonic() - began, job.real_time, load)


def _rank(job: EmulatedJob, place: Place, store: dist.Store, tell: Tell) -> list[RankRecord]:
    """The life of one emulated rank; rank 0 returns what all did."""
    if job.real_time and not into_real_time():
        raise RunError(f"rank {place.rank} may not run under SCHED_RR, its parent may")
    gc.disable()
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        store=store,
        rank=place.rank,
        world_size=place.ranks,
        timeout=timedelta(seconds=job.timeout_s),
    )
    try:
        record = _step(job, place, tell)
    except RunError as error:
        if TIMED_OUT not in str(error):
            sleep(OTHERS_FIRST_S)  # whose partner has timed out only sees its connection break
        raise
    everyone: list[Any] = [None] * place.ranks
    dist.all_gather_object(everyone, record)
    dist.barrier()  # the quick ones must not close connections that the slow ones still use
    dist.destroy_process_group()
    return everyone


def _step(job: EmulatedJob, place: Place, tell: Tell) -> RankRecord:
    program, times = job.program, job.times
    clock = Clock(job.scale, SLACK * shortest_pass(program, times))
    communicator = EmulatedCommunicator(
        place.rank, program, torch.device("cpu"), job.timeout_s, clock=clock, times=times
    )
    communicator.connect()
    plan = emulated_plan(program, communicator)
    optimizer = EmulatedOptimizer(plan, AdamW(), clock=clock, seconds=times.optimizer_s[plan.pipeline_rank])
    stages = EmulatedStages(program, times, clock, communicator)
    interpreter = Interpreter(
        plan,
        StepStates(plan, optimizer),
        hear=Listening(
            clock,
            steps_of(program) * len(program.lists[plan.pipeline_rank]),
            tell if place.rank == 0 else None,
        ),
        begin_passes=stages.begin,
        spread=lambda plan, states: SpreadVocabulary(
            plan, states, EmulatedExchanges(plan, stages), stages.begin_share
        ),
    )
    job.prepare(interpreter)
    warm(communicator, plan.message_buffer)
    clock.origin = communicator.meet_all(monotonic())
    nothing = MicroBatch(torch.zeros(0), torch.zeros(0), 1)
    before_s = 0.0
    for _ in range(steps_of(program)):
        before_s = max((timed.end for timed in clock.records), default=0.0)
        clock.records.clear()
        interpreter.step([nothing] * program.micro_batches)
    return RankRecord(
        plan.pipeline_rank,
        merged(clock.records, program.collectives),
        clock.starts,
        clock.late,
        stages.ledger.peak,
        before_s,
    )


def steps_of(program: Program) -> int:
    """How many steps are emulated."""
    return STEADY_STEPS if program.steps_overlap else 1


@dataclass
class Listening:
    """Hears of every action: sets the clock's, and now and then tells how far the list is."""

    clock: Clock
    actions: int
    tell: Tell | None
    ended: int = 0
    told: float = field(default_factory=monotonic)

    def __call__(self, action: Action, word: str) -> None:
        """Told by the interpreter when an action begins and when it has ended."""
        if word == "begin":
            self.clock.action = action
            return
        self.ended += 1
        if self.tell is not None and monotonic() - self.told > TOLD_EVERY_S:
            self.told = monotonic()
            self.tell(str(action), self.ended / self.actions)
