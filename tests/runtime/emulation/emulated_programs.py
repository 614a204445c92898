"""Programs that are emulated in tests: whole plans, and pipelines of given times that only pass and send."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod

from meshwright.cost.operators.price_plans import program_prices
from meshwright.model.load import load_model
from meshwright.plans.files.plan_file import parse_plan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.layers.recompute_by_layer import with_layer_recomputes
from meshwright.plans.resolve import resolve
from meshwright.plans.setting import Setting
from meshwright.program.program import Program
from meshwright.runtime.comm.pipeline_messages import PipelineMessages
from meshwright.runtime.emulation import clock
from meshwright.runtime.emulation.clock import Clock
from meshwright.runtime.emulation.emulate import emulate
from meshwright.runtime.emulation.emulation_result import Emulation
from meshwright.runtime.emulation.local_program import EXPERT_AXES, local_program
from meshwright.runtime.emulation.modelled_durations import ModelledTimes, PassTime
from meshwright.runtime.emulation.time_scale import PASS_S, shortest_pass
from meshwright.schedules.action import COMPUTE_KINDS
from meshwright.schedules.timeline import run
from meshwright.simulate.plan_estimate import lower_and_simulate
from meshwright.simulate.simulation_result import Simulation
from meshwright.verbs.run.modelled_times import modelled_times

SECONDS = {"F": 1.25, "I": 1.4, "W": 1.0, "B": 2.4}
MESSAGE_S = 0.4
LATE = 0.10
"""What the other work of a busy machine may add."""
TRIES = 3
MOVED = ("SEND_F", "RECV_F", "SEND_B", "RECV_B", "STEP")


@dataclass(frozen=True)
class Case:
    """A plan's Program, its simulated step and the times of both."""

    program: Program
    setting: Setting
    simulated: Simulation

    @property
    def times(self):
        return modelled_times(self.program, program_prices(self.program, self.setting))

    def emulated(self, processes):
        """One step, its shortest pass as long as it must be on a machine that is not idle."""
        local = local_program(self.program, processes)
        scale = 2 * PASS_S / shortest_pass(local, self.times)
        expected_s = self.simulated.step_s
        return local, in_time(lambda: emulate(local, self.times, expected_s, scale=scale), expected_s)


@dataclass
class Wall:
    """Wall time that passes in sleeps only."""

    passed: float = 0.0

    def monotonic(self) -> float:
        return self.passed

    def sleep(self, seconds: float) -> None:
        self.passed += seconds


def sleeping_wall(monkeypatch) -> Wall:
    """Put a wall into clocks that passes in sleeps only, and return it."""
    found = Wall()
    monkeypatch.setattr(clock, "monotonic", found.monotonic)
    monkeypatch.setattr(clock, "sleep", found.sleep)
    return found


def started(scale=0.001, slack_s=1000.0):
    """Return a clock that has been started."""
    return Clock(scale, slack_s, origin=clock.monotonic())


def in_time(run: Callable[[], Emulation], expected_s: float) -> Emulation:
    """A run that no other work of the machine held up, the last one where all were held up.

    Other work comes and goes, what an interpreter does wrong is in every run.
    """
    for _ in range(TRIES):
        emulation = run()
        if abs(emulation.step_s / expected_s - 1) < LATE:
            break
    return emulation


def of_plan(text: str) -> Case:
    """Return the case of a plan file's text."""
    resolved = resolve(parse_plan(text))
    program, simulation = lower_and_simulate(resolved.long, resolved.setting)
    return Case(program, resolved.setting, simulation)


def case(
    global_batch=8,
    stack="generic",
    sharding="none",
    gather=None,
    schedule="1f1b",
    chunks=1,
    recomputed=16,
    vocabulary=None,
    offload=None,
    model="llama-3.2-1b",
    synchronise=(),
    **degrees,
) -> Case:
    """The first ``recomputed`` of the layers are recomputed."""
    devices = prod(degree for axis, degree in degrees.items() if axis not in EXPERT_AXES)
    data = {
        "plan": 1,
        "model": model,
        "cluster": f"h100-sxm-80gb x {devices}",
        "workload": {"seq_len": 4096, "global_batch": global_batch},
        "stack": stack,
        "layout": degrees,
        "sharding": sharding,
        "pipeline": {"schedule": {"name": schedule, "vocabulary": vocabulary}, "virtual_stages": chunks},
        "recompute": "full",
    }
    given = {"gather": gather, "offload": offload, "synchronise": synchronise}
    data |= {key: value for key, value in given.items() if value}
    resolved = resolve(ShortPlan.model_validate(data))
    layers = load_model(model).architecture.layers
    of_layers = ["full"] * recomputed + ["none"] * (layers - recomputed)
    return Case(*_lowered(resolve(with_layer_recomputes(resolved.long, of_layers))))


def _lowered(resolved):
    program, simulation = lower_and_simulate(resolved.long, resolved.setting)
    return program, resolved.setting, simulation


def plain(schedule, micro_batches=6, pp=3, chunks=1):
    """A pipeline that only passes and sends, and its times; messages keep no sender."""
    program = case(micro_batches, schedule=schedule, chunks=chunks, pp=pp).program
    lists = tuple(tuple(a for a in row if a.kind in (*COMPUTE_KINDS, *MOVED)) for row in program.lists)
    times = ModelledTimes(
        passes={
            (stage.index, kind): PassTime(seconds / chunks)
            for stage in program.stages
            for kind, seconds in SECONDS.items()
        },
        exchanges={},
        message_s=MESSAGE_S,
        send_occupancy=0.0,
        sums_s=0.0,
        exchange_occupancy=0.0,
        copies=(0.0,) * len(program.stages),
        optimizer_s=(0.0,) * pp,
        perturbation_s=(0.0,) * pp,
        codec_s=(0.0,) * pp,
        overlap_slowdown=0.0,
    )
    return local_program(replace(program, lists=lists, collectives={}), pp), times


def expected(program, times):
    """The makespan of the lists by the schedule's own table, which knows nothing of interpreters."""
    lists = [[a for a in row if a.kind in COMPUTE_KINDS] for row in program.lists]
    duration = lambda action: times.passes[action.stage, action.kind].total_s  # noqa: E731
    return run(lists, duration, times.message_s).latency


class BlockingChannels(PipelineMessages):
    """The fault: a sender waits until its message has been taken."""

    def send(self, action, tensor):
        super().send(action, tensor)
        self.sent[-1][0].wait()


def blocked(interpreter):
    """Put the fault into a rank."""
    plan = interpreter.plan
    interpreter.channels = BlockingChannels(
        plan.program, plan.communicator, plan.pipeline_rank, plan.message_buffer
    )
