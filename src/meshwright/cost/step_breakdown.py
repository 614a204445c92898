"""Breakdown of a predicted step beyond its report: passes, kernels, recomputation, idle time.

Seconds of passes are those of the binding pipeline rank, the one with most to do, over all micro-batches:
communication inside a pass is counted with it. ``kernels_s`` splits the report's ``compute`` by kind of kernel.
The pipeline's length, messages left out, is

    L = mean work + fill and drain + imbalance

Fill and drain is what the schedule idles if every stage took the mean time of all; imbalance is what L is longer than
that pipeline, so work that the binding rank has beyond the mean is in it. With the messages beside them these are the
report's parts of the pipeline in another cut: L = work of the binding rank + its bubble.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from meshwright.cost.closed_form.plan_group import Floats, PlanGroup
from meshwright.cost.closed_form.step_parts import Pipelined, length_of, pipelined
from meshwright.cost.operators.operator_times import operator_seconds
from meshwright.cost.operators.pass_prices import total
from meshwright.cost.plan_report import group_of
from meshwright.model.operators.operator_types import (
    Attention,
    ExpertLinear,
    Linear,
    LinearAttention,
    Operator,
    StateSpace,
)
from meshwright.plans.forms.long import Stages
from meshwright.plans.forms.short import Recompute, ShortPlan
from meshwright.plans.setting import Setting
from meshwright.program.pass_items import Collective, Compute, Item, PassKind
from meshwright.program.pipeline_vocabulary import SHARE_PASSES, share_blocks

KERNELS: Mapping[type[Operator], str] = {
    Linear: "matrix_products",
    ExpertLinear: "experts",
    Attention: "attention",
    LinearAttention: "attention",
    StateSpace: "attention",
}
"""Kinds of kernels by operator; all others move bytes."""
MOVING = "memory_bound"


@dataclass(frozen=True, slots=True)
class StepBreakdown:
    """A step of one plan in seconds; ``work_s`` has an entry per pipeline rank.

    ``recompute_s`` and ``vocabulary_s`` are parts of the passes: what runs again, and embedding and head.
    """

    rank: int
    passes_s: Mapping[str, float]
    recompute_s: float
    vocabulary_s: float
    kernels_s: Mapping[str, float]
    work_s: tuple[float, ...]
    fill_drain_s: float
    imbalance_s: float

    @property
    def mean_work_s(self) -> float:
        """Return the mean work of a pipeline rank in seconds."""
        return sum(self.work_s) / len(self.work_s)


def step_breakdown(
    short: ShortPlan,
    setting: Setting,
    stages: Stages = "balanced",
    recomputes: tuple[Recompute, ...] | None = None,
) -> StepBreakdown:
    """Break a step down; ``stages`` and ``recomputes`` replace what the short form has."""
    group = group_of(short, setting, stages, recomputes)
    work = _work(group)
    rank = int(work.argmax())
    runs = list(_runs(group, rank))
    quiet = pipelined(group, False)
    silent, equal = (float(length_of(group, piped)[0]) for piped in (quiet, _equal(quiet)))
    return StepBreakdown(
        rank=rank,
        passes_s=_passes(group, rank),
        recompute_s=sum(run.seconds for run in runs if run.again),
        vocabulary_s=_vocabulary(group, rank),
        kernels_s=_kernels(runs),
        work_s=tuple(work.tolist()),
        fill_drain_s=equal - float(work.mean()),
        imbalance_s=silent - equal,
    )


@dataclass(frozen=True, slots=True)
class _Run:
    """An item of all micro-batches on the binding rank; ``kernels`` are its operators' seconds by kind."""

    seconds: float
    again: bool
    kernels: tuple[tuple[str, float], ...]


def _work(group: PlanGroup) -> Floats:
    """Seconds of all passes on every rank: (P,)."""
    stages = (group.visits[:, None] * group.per_rank(group.forward_s + group.backward_s))[0]
    return np.asarray(stages + (0 if group.share is None else group.micro_batches * group.share.whole_s))


def _equal(piped: Pipelined) -> Pipelined:
    """Return the same pipeline with the mean time of all stages on each of them."""
    passes = piped.passes
    forward, backward, weight = (
        None if times is None else np.repeat(times.mean(1, keepdims=True), times.shape[1], 1)
        for times in (passes.forward, passes.backward, passes.weight)
    )
    assert forward is not None
    assert backward is not None
    return Pipelined(passes._replace(forward=forward, backward=backward, weight=weight), piped.message)


def _passes(group: PlanGroup, rank: int) -> dict[str, float]:
    """Return seconds by kind of pass; those of a spread vocabulary have their own keys."""
    visits = float(group.visits[0])
    found = {
        str(kind): visits * float(group.per_rank(group.stage_times(group.priced(kind)))[0, rank])
        for kind in group.pass_kinds
    }
    if group.share is not None:
        count = float(group.micro_batches[0])
        found |= {str(kind): count * _one(group.share.seconds[kind]) for kind in SHARE_PASSES}
    return found


def _blocks(group: PlanGroup, rank: int) -> Iterator[tuple[int, PassKind, float]]:
    """(block, pass, how often) of everything that a rank runs in a step."""
    for kind in group.pass_kinds:
        bodies = group.bodies(kind)
        for stage in group.stages_at[:, rank].tolist():
            for segment in bodies[group.kind_of[stage]]:
                if segment.block is not None:
                    yield segment.block, segment.kind, segment.count * float(group.visits[0])
    if group.share is not None:
        for kind in SHARE_PASSES:
            for block in share_blocks(group.setting.model, kind):
                yield block, kind, float(group.micro_batches[0])


def _runs(group: PlanGroup, rank: int) -> Iterator[_Run]:
    for block, kind, often in _blocks(group, rank):
        for item in group.prices.items_of[block, kind]:
            again = (item.phase if isinstance(item, Compute | Collective) else item.compute[0].phase) == "R"
            kernels = tuple(
                (KERNELS.get(type(c.operator), MOVING), often * _one(_compute(group, c)))
                for c in _computed(item)
            )
            yield _Run(often * _one(total(group.prices.item(item, group.prices.local))), again, kernels)


def _computed(item: Item) -> tuple[Compute, ...]:
    if isinstance(item, Compute):
        return (item,)
    return () if isinstance(item, Collective) else item.compute


def _compute(group: PlanGroup, compute: Compute) -> object:
    return operator_seconds(compute.operator, compute.phase, group.prices.local)


def _kernels(runs: list[_Run]) -> dict[str, float]:
    found = dict.fromkeys((*KERNELS.values(), MOVING), 0.0)
    for run in runs:
        for kind, seconds in run.kernels:
            found[kind] += seconds
    return found


def _vocabulary(group: PlanGroup, rank: int) -> float:
    """Seconds of embedding and head, or of a share of them."""
    model = group.setting.model
    ends = {model.chain[0][0], model.chain[-1][0]}
    return sum(
        often * _one(total(group.prices.block(block, kind)))
        for block, kind, often in _blocks(group, rank)
        if block in ends
    )


def _one(value: object) -> float:
    """Return the number of the only plan."""
    return float(np.ravel(np.asarray(value))[0])
