"""The schedule solver's input from a plan: times of stages and messages, bytes per stage, free bytes per rank.

Times are those that lists are played with (``cost/closed_form/step_parts.py``): F, I and W of every stage with the
part of a message that keeps its sender, and what is left of the message. A stage holds what the ledger counts, and
what no list changes is no room: parameters, gradients, optimizer, buffers, workspace. Each size is a part of its
rank's room, which is the limit, 1. Where steps overlap the longest span of a rank is to be short, else the time from
the first start to the last end; what is around the lists (gathers, reductions, optimizer) a solver does not see, so
that what it finds is predicted like any plan before it is taken. The plan's own lists are where it begins, with B as
I and W.
"""

from dataclasses import dataclass

import numpy as np

from meshwright.cost.closed_form.plan_group import PlanGroup
from meshwright.cost.closed_form.step_parts import pipelined
from meshwright.cost.memory.memory_breakdown import usable_device_bytes
from meshwright.cost.memory.rank_ledgers import ledgers_without_lists
from meshwright.cost.plan_report import group_of
from meshwright.plans.forms.long import LongPlan, Stages
from meshwright.plans.forms.short import Recompute, Schedule, ShortPlan
from meshwright.plans.layers.recompute_by_layer import layer_recomputes
from meshwright.plans.setting import Setting
from meshwright.schedules.action import ActionLists
from meshwright.schedules.choice import ScheduleChoice
from meshwright.schedules.custom.csv_file import format_csv
from meshwright.schedules.custom.custom_schedule import CustomSchedule
from meshwright.schedules.pipeline import PASS_MEMORY, Knobs, Pipeline
from meshwright.schedules.solve import Goal, InitialList, SolverInput, StageMemory
from meshwright.schedules.solve.initial_schedules import split_orders
from meshwright.schedules.split_backward.pass_numbers import numbered
from meshwright.schedules.stage_times import StageTimes


@dataclass(frozen=True, slots=True)
class CustomSchedulePlan:
    """A plan but for its schedule, which is lists of its own; ``memory_limit`` as a plan states it."""

    short: ShortPlan
    stages: Stages = "balanced"
    recomputes: tuple[Recompute, ...] | None = None
    memory_limit: float | None = None

    @classmethod
    def of(
        cls, short: ShortPlan, long: LongPlan, setting: Setting, memory_limit: float | None = None
    ) -> "CustomSchedulePlan":
        """Return a plan with closed forms; ``short`` equals it but for its stages and each layer's recomputation."""
        recomputes = layer_recomputes(long, setting.model.architecture.layers)
        return cls(short, long.pipeline.stages, recomputes, memory_limit)

    def schedule(self, lists: ActionLists) -> Schedule:
        """Return the schedule entry of a plan for these lists."""
        written = CustomSchedule(tuple(format_csv(lists).splitlines()))
        return Schedule.of(ScheduleChoice(written.name, memory_limit=self.memory_limit, written=written))

    def group(self, setting: Setting, lists: ActionLists | None = None) -> PlanGroup:
        """Return the plan as a priced group, with its own schedule or with lists."""
        short = self.short
        if lists is not None:
            pipeline = short.pipeline.model_copy(update={"schedule": self.schedule(lists)})
            short = short.model_copy(update={"pipeline": pipeline})
        return group_of(short, setting, self.stages, self.recomputes)


def unsupported_by_solver(short: ShortPlan) -> str | None:
    """Why a solver can not see a plan; None where it can."""
    choice = short.pipeline.choice
    if short.layout.pp == 1:
        return "one pipeline rank has nothing to order"
    if short.workload.optimizer_in_full.forward_only:
        return "forward passes alone have one order"
    if choice.kind.chains > 1:
        return f"{choice} goes two ways through the model"
    if choice.form is not None:
        return f"{choice} spreads the vocabulary over the ranks"
    if short.gather == "per-unit":
        return "its micro-batches go in units"
    if short.offload is not None and short.offload.rule.share:
        return "its activations wait on the host between passes"
    return None


def solver_task(plan: CustomSchedulePlan, setting: Setting) -> SolverInput:
    """Return the solver's task of a plan, with times in seconds."""
    choice = plan.short.pipeline.choice
    assert unsupported_by_solver(plan.short) is None
    named = plan.group(setting)
    count, stages = int(named.micro_batches[0]), len(named.placement)
    times = named.times[0] if named.times else None
    own = choice.lists(named.ranks, count, named.chunks, times)
    own = numbered(split_orders(own, stages), stages)
    group = plan.group(setting, own)
    holding = _holding(group, plan.memory_limit)
    pipeline = Pipeline(
        ranks=group.ranks,
        micro_batches=count,
        placement=group.placement,
        times=_times(group, holding),
        knobs=Knobs(memory_limit=_safe_limit(holding, group.chunks)),
    )
    goal: Goal = "makespan" if group.steps_overlap else "latency"
    initial = (InitialList(str(choice), own),)
    return SolverInput(pipeline=pipeline, holding=holding, goal=goal, initial=initial)


def _times(group: PlanGroup, holding: StageMemory) -> StageTimes:
    piped = pipelined(group, True)
    passes = piped.passes
    assert passes.weight is not None
    forward, input_, weight = (
        tuple(row[0].tolist()) for row in (passes.forward, passes.backward, passes.weight)
    )
    kept = max(
        left / whole if whole else 0.0 for whole, left in zip(holding.whole, holding.left, strict=True)
    )
    return StageTimes(forward, input_, weight, float(piped.message[0]), min(1.0, kept))


def _holding(group: PlanGroup, memory_limit: float | None) -> StageMemory:
    """Sizes as parts of the room of their ranks, and of a limit that the plan states where that is less."""
    capacity = usable_device_bytes(group.setting.cluster)
    taken = sum(ledgers_without_lists(group).values(), start=np.zeros((1, group.ranks)))[0]
    room = np.maximum(capacity - taken, 1.0)[list(group.placement)]
    whole, left = (sizes[0, group.kind_of] / room for sizes in (group.kept, group.kept_for_weights))
    if memory_limit is not None:
        one = 1 / (memory_limit * group.ranks * group.chunks)
        whole, left = np.maximum(whole, one), np.maximum(left, one / PASS_MEMORY)
    return StageMemory(tuple(whole.tolist()), tuple(left.tolist()), 1.0)


def _safe_limit(holding: StageMemory, chunks: int) -> float | None:
    """Of whole ranks' forward passes no rank holds too much, whatever stages they are of."""
    largest = max(*holding.whole, *holding.left)
    return max(1.0, holding.limit / largest / chunks) * PASS_MEMORY if largest else None
