"""Forms of context parallelism that another form beats, whatever a plan is otherwise.

Forms of one plan differ in what attention takes and exchanges, forward and backward, in what it keeps of a micro-batch,
and in what its backward pass works with. A plan's time and memory never get better when one of these gets worse: what
is kept is held at least once in either pass, what is worked with is there beside it. So a form is beaten where another
one is no worse in any of

* seconds of what attention does forward; of what it does backward, alone and with what may run again there;
* bytes that it keeps;
* bytes that it keeps and works with;

and, where they are equal in all, the other one comes first. It need not be searched. Only degrees and the micro-batch
decide, and where ranks lie; an order of ranks may favour another form, so beaten is what is beaten in every order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from meshwright.cost.closed_form.evaluate_plans import distinct_shapes
from meshwright.cost.operators.pass_prices import Prices, total
from meshwright.cost.operators.price_plans import array_prices
from meshwright.model.operators.operator_types import Attention, LinearAttention
from meshwright.plans.arrays.distinct_rows import distinct
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.setting import Setting
from meshwright.program.activation_bytes import gathered_for_backward_bytes, inner_bytes
from meshwright.program.context_parallel.attention_collectives import (
    attention_with_exchanges,
    heads_exchange_after_attention,
    heads_exchange_before_attention,
)
from meshwright.program.context_parallel.linear_attention_collectives import linear_attention_with_exchanges
from meshwright.program.local_shape import Mode, Number
from meshwright.program.pass_items import Item, Phase

PHASES: tuple[Phase, ...] = ("F", "I")
COSTS = 7
ALL, SECONDS, BYTES = slice(0, COSTS), slice(0, 5), slice(5, COSTS)
"""What is compared, in the order above."""
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class UndominatedForms:
    """Forms that no other beats, in all costs or in seconds alone: (codes, n)."""

    unbeaten: Bools
    quick: Bools


def undominated_forms(base: PlanArrays, legal: Bools, setting: Setting) -> UndominatedForms:
    """Return the legal forms of each base plan that no other form beats in every order of ranks."""
    columns = [base.cp, base.tp, base.micro_batch, *np.packbits(legal, axis=0).astype(np.int64)]
    if not base.tp_and_cp_inner:
        columns += [base.dp_shard, base.dp_replicate, base.pp]
    if base.several_sizes:
        columns += [base.devices]
    patterns = distinct(columns)
    plans, may = base.take(patterns.first), legal[:, patterns.first]
    unbeaten, quick = np.zeros((2, *may.shape), dtype=np.bool_)
    for order in range(1 if base.tp_and_cp_inner else len(base.values["order"])):
        ordered = plans.with_columns({"order": np.full(len(plans), order)})
        unbeaten |= undominated_in_costs(ordered, may, setting)
        quick |= undominated_in_costs(ordered, may, setting, SECONDS)
    return UndominatedForms(unbeaten[:, patterns.inverse], quick[:, patterns.inverse])


def undominated_in_costs(plans: PlanArrays, legal: Bools, setting: Setting, costs: slice = ALL) -> Bools:
    """Those of the ``legal`` forms that no other legal one beats in some costs, in the order that plans have."""
    rows = np.flatnonzero(legal.sum(0) > 1)
    if not len(rows):
        return legal
    found = distinct_shapes(plans.take(rows), Mode(sequence_parallel=False))
    shapes = plans.take(rows[found.first])
    result, may = legal.copy(), legal[:, rows]
    own = {int(code): _costs(shapes, int(code), setting)[:, costs] for code in np.flatnonzero(may.any(1))}
    beaten = np.zeros_like(may)
    for code, other in permutations(own, 2):
        no_worse, equal = (own[other] <= own[code]), (own[other] == own[code])
        beats = no_worse.all((0, 1)) & (~equal.all((0, 1)) | (other < code))
        beaten[code] |= beats[found.inverse] & may[other]
    result[:, rows] &= ~beaten
    return result


def _costs(shapes: PlanArrays, code: int, setting: Setting) -> Floats:
    """Return a form's costs in every attention, infinite where it does not divide cp: (attentions, costs, n)."""
    context = shapes.values["context"][code]
    possible = np.flatnonzero(shapes.cp % context.heads(shapes.cp) == 0)
    plans = shapes.take(possible).with_columns({"context": np.full(len(possible), code)})
    prices = array_prices(plans, Mode(sequence_parallel=False, context=context), setting)
    every = {
        op: None
        for block in setting.model.blocks
        for op in block.operators
        if isinstance(op, Attention | LinearAttention)
    }
    result = np.full((len(every), COSTS, len(shapes)), np.inf)
    for of_op, op in zip(result, every, strict=True):
        for row, number in zip(of_op, _of_one(op, prices), strict=True):
            row[possible] = number
    return result


def _of_one(op: Attention | LinearAttention, prices: Prices) -> Iterator[Number]:
    shape, mode, stack = prices.local.shape, prices.local.mode, prices.local.stack
    (enter, enter_back), (attend, attend_back), (leave, leave_back) = zip(
        *(
            [
                sum((total(prices.item(item, prices.local)) for item in part), start=0.0)
                for part in _parts(op, prices, phase)
            ]
            for phase in PHASES
        ),
        strict=True,
    )
    yield enter + attend + leave
    backward = enter_back + attend_back + leave_back
    yield from (backward + again for again in (0.0, enter, attend, enter + attend))
    kept = inner_bytes(op, shape, mode, stack)
    yield kept
    yield kept + gathered_for_backward_bytes(op, shape, mode)


def _parts(op: Attention | LinearAttention, prices: Prices, phase: Phase) -> Iterator[list[Item]]:
    """Yield the exchanges before attention, attention with its own exchanges, and the exchanges after it."""
    shape, mode = prices.local.shape, prices.local.mode
    if isinstance(op, LinearAttention):
        yield from ([], linear_attention_with_exchanges(op, shape, mode, phase), [])
    else:
        yield from (
            part(op, shape, mode, phase)
            for part in (
                heads_exchange_before_attention,
                attention_with_exchanges,
                heads_exchange_after_attention,
            )
        )
