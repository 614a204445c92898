"""Emulate steps of a Program on local processes: the real interpreter with an emulated clock and emulated passes.

The ranks are forked, run under SCHED_RR if that is allowed, use every connection once, agree on an origin of time,
and execute their lists. If more than one start in twenty was late, the run is repeated once at double scale, and
both runs are reported; the better of several is never picked. A rank that times out names its action and the ranks
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
from meshwright.runtime.emulation.clock import Clock
from meshwright.runtime.emulation.communicator import EmulatedCommunicator, EmulatedGroups, warm
from meshwright.runtime.emulation.emulation_result import EmulatedSteps, Emulation, RankRecord, merged
from meshwright.runtime.emulation.islands_exchanges import EmulatedSynchroniser
from meshwright.runtime.emulation.modelled_durations import ModelledTimes
from meshwright.runtime.emulation.passes import EmulatedStages
from meshwright.runtime.emulation.time_scale import (
    SLACK,
    chosen_scale,
    into_real_time,
    real_time_allowed,
    shortest_pass,
)
from meshwright.runtime.emulation.units_and_optimizer import EmulatedOptimizer, EmulatedStates, emulated_plan
from meshwright.runtime.emulation.vocabulary_exchanges import EmulatedExchanges
from meshwright.runtime.executor.interpreter import Interpreter
from meshwright.runtime.executor.operator_call import MicroBatch
from meshwright.runtime.launch.forked_ranks import ProgressCallback, run_locally
from meshwright.runtime.launch.launcher_environment import Place
from meshwright.runtime.pipeline_vocabulary.share_actions import VocabularyShare
from meshwright.runtime.state.step_options import StepOptions
from meshwright.schedules.action import Action

TOO_LATE = 0.05
"""Share of late starts above which a run is repeated."""
REPORT_EVERY_S = 0.5
GRACE_S = 20.0
"""Seconds allowed for start-up, and for a wait beyond the modelled one."""
TIMED_OUT = "Timed out"
"""Text in gloo's error message when an operation times out."""
OTHERS_FIRST_S = 1.0
Prepare = Callable[[Interpreter], None]


@dataclass(frozen=True)
class EmulatedJob:
    """Inputs of every rank.

    ``prepare`` is applied to the interpreter before the first step; ``timeout_s`` limits the wait of an operation.
    """

    program: Program
    times: ModelledTimes
    steps: EmulatedSteps
    scale: float
    real_time: bool
    timeout_s: float
    prepare: Prepare


def scale_here(program: Program, times: ModelledTimes) -> float:
    """Return the scale that ``emulate`` would choose on this machine now."""
    return chosen_scale(program, times, real_time=real_time_allowed(), load=os.getloadavg()[0])


def emulate(
    program: Program,
    times: ModelledTimes,
    expected_s: float,
    *,
    steps: EmulatedSteps | None = None,
    report: ProgressCallback = lambda what, part: None,
    prepare: Prepare = lambda interpreter: None,
    scale: float | None = None,
    grace_s: float = GRACE_S,
) -> Emulation:
    """Emulate ``steps`` of a local Program (``local_program.py``), each of which should take about ``expected_s``.

    Without ``steps`` it is one, behind others if steps overlap. A given ``scale`` is kept, and the run is not repeated.
    Raises RunError if a rank fails or times out.
    """
    real_time = real_time_allowed()
    chosen, wanted = scale or scale_here(program, times), steps or EmulatedSteps.steady(program)

    def run(at_scale: float) -> Emulation:
        waits = grace_s + 2 * at_scale * expected_s * wanted.total
        return _run(EmulatedJob(program, times, wanted, at_scale, real_time, waits, prepare), report)

    first = run(chosen)
    if scale is None and first.late_share > TOO_LATE:
        return replace(run(2 * chosen), earlier=(first,))
    return first


def _run(job: EmulatedJob, report: ProgressCallback) -> Emulation:
    load, began = os.getloadavg()[0], monotonic()

    def work(place: Place, store: dist.Store, report: ProgressCallback) -> object:
        return _rank(job, place, store, report)

    # the operation's own time-out names it, so the processes' limit is longer and only catches silent hangs
    ranks = run_locally(work, job.program.parts.ranks, 2 * job.timeout_s + GRACE_S, report)
    assert isinstance(ranks, list)
    return Emulation(tuple(ranks), job.scale, monotonic() - began, job.real_time, load, job.steps)


def _rank(job: EmulatedJob, place: Place, store: dist.Store, report: ProgressCallback) -> list[RankRecord]:
    """Run one emulated rank; return the records of all ranks."""
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
        record = _steps(job, place, report)
    except RunError as error:
        if TIMED_OUT not in str(error):
            sleep(OTHERS_FIRST_S)  # let the rank that timed out report before the connections break
        raise
    everyone: list[Any] = [None] * place.ranks
    dist.all_gather_object(everyone, record)
    dist.barrier()  # no rank may close a connection that another still uses
    dist.destroy_process_group()
    return everyone


def _steps(job: EmulatedJob, place: Place, report: ProgressCallback) -> RankRecord:
    program, times = job.program, job.times
    clock = Clock(job.scale, SLACK * shortest_pass(program, times))
    groups = EmulatedGroups()
    groups.connect(program, place.rank, job.timeout_s, accelerated=False)
    communicator = EmulatedCommunicator(
        place.rank, program, torch.device("cpu"), groups=groups, clock=clock, times=times
    )
    plan = emulated_plan(program, communicator)
    optimizer = EmulatedOptimizer(
        plan,
        StepOptions(),
        clock=clock,
        seconds=times.optimizer_s[plan.pipeline_rank],
        codec_s=times.codec_s[plan.pipeline_rank],
    )
    stages = EmulatedStages(program, times, clock, communicator)
    exchanges = EmulatedSynchroniser(plan, optimizer, clock=clock, times=times)
    interpreter = Interpreter(
        plan,
        EmulatedStates(
            plan,
            optimizer,
            clock=clock,
            seconds=times.perturbation_s[plan.pipeline_rank],
            exchanges=exchanges,
        ),
        hear=Listening(
            clock,
            job.steps.total * len(program.lists[plan.pipeline_rank]),
            report if place.rank == 0 else None,
        ),
        begin_passes=stages.begin,
        spread=lambda plan, states: VocabularyShare(
            plan, states, EmulatedExchanges(plan, stages), stages.begin_share
        ),
    )
    job.prepare(interpreter)
    warm(communicator, plan.message_buffer)
    clock.origin = communicator.meet_all(monotonic())
    nothing = MicroBatch(torch.zeros(0), torch.zeros(0), 1)
    before_s = end_s = 0.0
    for number in range(job.steps.total):
        if number == job.steps.before:
            before_s = end_s
            exchanges.records.clear()
        clock.records.clear()
        interpreter.step([nothing] * program.micro_batches)
        end_s = max((timed.end for timed in (*clock.records, *exchanges.records)), default=0.0)
    return RankRecord(
        plan.pipeline_rank,
        merged(clock.records, program.collectives),
        clock.starts,
        clock.late,
        stages.ledger.peak,
        before_s,
        end_s,
        tuple(exchanges.records),
    )


@dataclass
class Listening:
    """Listener of the interpreter's actions: sets the clock's action and reports progress now and then."""

    clock: Clock
    actions: int
    report: ProgressCallback | None
    ended: int = 0
    reported_at: float = field(default_factory=monotonic)

    def __call__(self, action: Action, word: str) -> None:
        """Handle the begin or end of an action."""
        if word == "begin":
            self.clock.action = action
            return
        self.ended += 1
        if self.report is not None and monotonic() - self.reported_at > REPORT_EVERY_S:
            self.reported_at = monotonic()
            self.report(str(action), self.ended / self.actions)
