"""Lower bounds of the time of state exchanges, during the passes of a step and around them.

Exchanges inside passes, G a micro-batch over all stages, share the work of the mean rank: M·G / P.

Where stages lie in a loop and backward passes are whole, the first rank begins the step and ends it. What is left of
its first stage's gather delays its first pass, and what is left of that stage's reduction follows its last one. Other
ranks may add to both, and take nothing from them. Long passes hide most, so that the longest ones give the bound.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.evaluate_plans import modes_exchange_states, pipeline_groups
from meshwright.cost.closed_form.overlap_and_optimizer import during_gather, reduction_tail
from meshwright.cost.closed_form.plan_group import PlanGroup
from meshwright.cost.operators.price_plans import setting_hardware_times
from meshwright.cost.pipeline_time.gpipe_1f1b_interleaved import have_forms
from meshwright.plans.arrays.distinct_rows import Distinct
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting
from meshwright.program.model_states.data_parallel_collectives import add

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class ExchangesAround:
    """The first stage's exchanges once a step, of some ``rows`` of plans, in seconds; ``units`` are its blocks."""

    rows: Ints
    gather: Floats
    reduce: Floats
    units: Floats

    def take(self, which: Ints) -> "ExchangesAround":
        """Return some of the plans."""
        return ExchangesAround(self.rows[which], self.gather[which], self.reduce[which], self.units[which])


class StateExchangeBounds:
    """Exchanges of the states of base plans, which have ``states`` of so many kinds, in any order of their ranks."""

    def __init__(self, base: PlanArrays, setting: Setting, states: Distinct) -> None:
        self.base, self.setting, self.states = base, setting, states
        inside = modes_exchange_states(base, setting)
        self._inside = np.flatnonzero(inside)
        self._outside = np.flatnonzero(~inside & have_forms(base))
        self._in_passes: dict[int, Floats] = {}
        self._around: dict[int, ExchangesAround] = {}

    def in_passes(self, order: int, among: Bools) -> tuple[Ints, Floats]:
        """Rows of a mask whose passes exchange states, and the seconds in all passes of a step of the mean rank."""
        if order not in self._in_passes:
            (once,) = self._of_states(self._inside, order, 1, _once_in_passes)
            count = self.base.take(self._inside).micro_batches(self.setting.workload.computed_sequences)
            self._in_passes[order] = count * once / self.base.pp[self._inside]
        chosen = among[self._inside]
        return self._inside[chosen], self._in_passes[order][chosen]

    def around(self, order: int, among: Bools) -> ExchangesAround:
        """Exchanges once a step, of rows of a mask that have them, and closed forms."""
        if order not in self._around:
            gather, reduce, units = self._of_states(self._outside, order, 3, _of_first_stage)
            found = ExchangesAround(self._outside, gather, reduce, units)
            self._around[order] = found.take(np.flatnonzero(gather + reduce))
        return self._around[order].take(np.flatnonzero(among[self._around[order].rows]))

    def exposed(self, around: ExchangesAround, forward: Floats, backward: Floats) -> Floats:
        """Seconds around the passes at least.

        ``forward`` and ``backward`` are no less than the seconds of the first stage's passes: (rows,).
        """
        stack, hardware = self.setting.stack, setting_hardware_times(self.setting)
        ahead, behind = around.gather, around.reduce
        if stack.overlap_parameter_gather:
            ahead = np.maximum(0.0, during_gather(forward, ahead, hardware) - forward)
        if stack.overlap_gradient_reduction:
            behind = np.asarray(reduction_tail(behind, backward, around.units, hardware))
        return np.asarray(ahead + np.maximum(0.0, behind))

    def _of_states(
        self, rows: Ints, order: int, count: int, of_group: Callable[[PlanGroup], tuple[Floats, ...]]
    ) -> Floats:
        """Values of each row, found once for each kind of states: (count, rows)."""
        kinds, first, inverse = np.unique(self.states.inverse[rows], return_index=True, return_inverse=True)
        plans, found = self.base.take(rows[first]), np.zeros((count, len(kinds)))
        ordered = plans.with_columns({"order": np.full(len(plans), order)})
        for members, group in pipeline_groups(ordered, self.setting):
            found[:, members] = of_group(group)
        return found[:, inverse]


def _once_in_passes(group: PlanGroup) -> tuple[Floats]:
    """Seconds of the exchanges in all passes of a micro-batch over all stages: (n,)."""
    stages = np.bincount(group.kind_of)
    result = np.zeros(len(group.plans))
    for kind in group.pass_kinds:
        for count, body in zip(stages, group.bodies(kind), strict=True):
            for segment in body:
                if segment.overlapped:
                    result = result + count * group.per_plan(segment.count * group.prices.overlapped(segment))
    return (result / group.kind.chains,)


def _of_first_stage(group: PlanGroup) -> tuple[Floats, Floats, Floats]:
    """Return the seconds of the first stage's gather and reduction, and the number of its blocks."""
    none, (part,) = np.zeros(len(group.plans)), group.parts
    if group.kind.chains > 1 or group.split or group.schedule.form is not None:
        return none, none, none + 1
    stage = group.per_plan_elements(add(*(group.block_elements[block] for block in group.stages[0])))
    return (
        none if group.by_unit else group.seconds_of(group.gathers_of(part, stage)),
        none if group.by_unit else group.seconds_of(group.reductions_of(part, stage)),
        none + len(group.stages[0]),
    )
