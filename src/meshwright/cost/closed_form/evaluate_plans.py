"""Closed forms over arrays of plans: step time, its parts and memory of every plan, without lowering any.

Plans are grouped by blocks (what layers run again, where the vocabulary lies) and mode (other choices that change
which operations exist), then by pipeline shape (P, V, schedule). In a group everything is arithmetic on arrays:
passes over distinct blocks are priced once for all plans, summed to stage times (n × K), and put into the pipeline's
closed form; exposed parts of gathers and reductions, gradient norm and optimizer are added. Equal to the simulation of
the lowered Program: bytes exactly, time within 3 % (tests).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from meshwright.cluster.cluster import Cluster
from meshwright.cost.closed_form.plan_group import PlanGroup
from meshwright.cost.closed_form.step_parts import PARTS, pipeline_lengths, step_parts, step_total
from meshwright.cost.constants_by_row import ConstantCases
from meshwright.cost.memory.memory_breakdown import KEYS, fits, total_bytes
from meshwright.cost.memory.rank_ledgers import host_memory_suffices, worst_ledger
from meshwright.cost.operators.pass_prices import Prices
from meshwright.cost.operators.price_plans import array_prices, heads_exchanged
from meshwright.cost.pipeline_time.offload_copies import OFFLOAD
from meshwright.model.transforms.vocabulary_parallel import with_vocabulary_parallel
from meshwright.plans.arrays.distinct_rows import Distinct, distinct
from meshwright.plans.arrays.host_states import some_states_on_hosts
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.choices.gather import GATHERS, NEVER
from meshwright.plans.choices.sharding import SHARDINGS
from meshwright.plans.context_parallel import USUAL, Context
from meshwright.plans.forms.short import ShardingName, default_gather
from meshwright.plans.setting import Setting
from meshwright.program.local_shape import Mode
from meshwright.program.lowering.lower_plan import recomputed_model
from meshwright.program.model_states.stack_zero_semantics import ExchangeTiming, exchange_timing
from meshwright.stack.stack import Stack

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimates:
    """One entry per plan. ``memory`` holds the worst pipeline rank's ledger; seconds and bytes."""

    step_s: Floats
    memory: dict[str, Floats]
    cluster: Cluster
    hosts_hold: NDArray[np.bool_]

    @property
    def total_bytes(self) -> Floats:
        """Peak of the worst rank."""
        return sum((self.memory[key] for key in KEYS), start=np.zeros(len(self.step_s)))

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Return the mask of plans that fit, on the devices and on the hosts."""
        return np.asarray(fits(self.total_bytes, self.cluster), dtype=np.bool_) & self.hosts_hold


def evaluate(plans: PlanArrays, setting: Setting, *, only_fitting: bool = False) -> Estimates:
    """Estimate every plan of an array. The plans are legal for the setting.

    ``only_fitting``: plans that do not fit get no time (infinite), which is what a search needs.
    """
    n = len(plans)
    step_s = np.full(n, np.inf)
    memory, held = {key: np.zeros(n) for key in KEYS}, np.ones(n, dtype=np.bool_)
    timed: list[tuple[NDArray[np.int64], PlanGroup]] = []
    for rows, group in pipeline_groups(plans, setting):
        ledger = worst_ledger(group)
        _store(memory, rows, ledger)
        some, timed_rows = group, rows
        if only_fitting:
            chosen = np.flatnonzero(fits(total_bytes(ledger), setting.cluster))
            some, timed_rows = group if len(chosen) == len(rows) else group.take(chosen), rows[chosen]
        if len(timed_rows):
            held[timed_rows] = host_memory_suffices(some)
            timed.append((timed_rows, some))
    _store_times(step_s, timed)
    return Estimates(step_s, memory, setting.cluster, held)


def fitting(plans: PlanArrays, setting: Setting) -> NDArray[np.bool_]:
    """Return the mask of plans that fit, on the devices and on the hosts."""
    result = np.zeros(len(plans), dtype=np.bool_)
    for rows, group in pipeline_groups(plans, setting):
        result[rows] = np.asarray(
            fits(total_bytes(worst_ledger(group)), setting.cluster)
        ) & host_memory_suffices(group)
    return result


def step_seconds(plans: PlanArrays, setting: Setting, cases: ConstantCases | None = None) -> Floats:
    """Return the step time of every plan in seconds, whether it fits or not.

    ``cases``: the constants that each plan is priced with; only for plans whose schedules have closed forms.
    """
    step_s = np.zeros(len(plans))
    _store_times(step_s, list(pipeline_groups(plans, setting, cases)))
    return step_s


def seconds_by_part(plans: PlanArrays, setting: Setting) -> dict[str, Floats]:
    """Return the step time of every plan in seconds, by part."""
    waits = plans.some_offload or some_states_on_hosts(plans)
    parts = {name: np.zeros(len(plans)) for name in ((*PARTS, OFFLOAD) if waits else PARTS)}
    timed = list(pipeline_groups(plans, setting))
    lengths = pipeline_lengths([group for _, group in timed], silent=True)
    for (rows, group), length in zip(timed, lengths, strict=True):
        _store(parts, rows, step_parts(group, length))
    return parts


def _store_times(step_s: Floats, timed: Sequence[tuple[NDArray[np.int64], PlanGroup]]) -> None:
    lengths = pipeline_lengths([group for _, group in timed])
    for (rows, group), length in zip(timed, lengths, strict=True):
        step_s[rows] = step_total(group, length)


def _store(table: dict[str, Floats], rows: NDArray[np.int64], values: dict[str, Floats]) -> None:
    for name, value in values.items():
        table[name][rows] = value


def pipeline_groups(
    plans: PlanArrays, setting: Setting, cases: ConstantCases | None = None
) -> Iterator[tuple[NDArray[np.int64], PlanGroup]]:
    """Rows of equal mode, pipeline shape, schedule and sharding; passes are priced once per distinct shape."""
    for one in mode_groups(plans, setting, cases):
        chosen = plans.take(one.rows)
        shape = [chosen.pp, chosen.virtual_stages, chosen.schedule, chosen.sharding, chosen.offload]
        shape += [chosen.offloaded_optimizer, chosen.offloaded_parameters]
        for rows in distinct(shape).groups():
            mine = cases and cases.take(one.rows[rows])
            group = PlanGroup(chosen.take(rows), one.inverse[rows], one.prices, one.mode, one.setting, mine)
            yield one.rows[rows], group


@dataclass(frozen=True)
class ModeGroup:
    """``rows`` of plans with equal blocks and mode; row i of them has the prices of ``inverse[i]``."""

    rows: NDArray[np.int64]
    inverse: NDArray[np.int64]
    prices: Prices
    mode: Mode
    setting: Setting


def mode_groups(
    plans: PlanArrays, setting: Setting, cases: ConstantCases | None = None
) -> Iterator[ModeGroup]:
    """Rows of equal blocks and mode, with prices of its distinct shapes; the setting's model has the blocks."""
    for of_model, held in _models(plans, setting):
        of_one = plans.take(of_model)
        for of_mode, mode in _modes(of_one, held):
            rows = of_model[of_mode]
            mine = cases and cases.take(rows)
            found = distinct_shapes(of_one.take(of_mode), mode, mine)
            shapes, priced = plans.take(rows[found.first]), mine and mine.take(found.first)
            yield ModeGroup(rows, found.inverse, array_prices(shapes, mode, held, priced), mode, held)


def _models(plans: PlanArrays, setting: Setting) -> Iterator[tuple[NDArray[np.int64], Setting]]:
    """Rows whose blocks are equal, of one form of a spread vocabulary and of one recomputation."""
    forms = [choice.vocabulary if choice.form else None for choice in plans.schedules]
    names = list(dict.fromkeys(forms))
    columns = [np.array([names.index(form) for form in forms])[plans.schedule], plans.recompute]
    layers = setting.model.architecture.layers
    for rows in distinct(columns).groups():
        form, recompute = (
            forms[int(plans.schedule[rows[0]])],
            plans.values["recompute"][int(plans.recompute[rows[0]])],
        )
        of_layers = plans.layer_recomputes or (recompute,) * layers
        model = recomputed_model(setting.model, of_layers, setting.stack)
        yield rows, replace(setting, model=with_vocabulary_parallel(model) if form else model)


def _modes(plans: PlanArrays, setting: Setting) -> Iterator[tuple[NDArray[np.int64], Mode]]:
    """Rows of equal mode: sequence parallelism, when states are exchanged, the form of context parallelism.

    How many ranks exchange heads is a matter of shapes: a mode's form has any such number.
    """
    different, when = _when(plans, setting)
    every = [USUAL, *(_of_any_degree(context) for context in plans.values["context"])]
    forms = list(dict.fromkeys(every))
    context = np.array([forms.index(form) for form in every])[np.where(plans.cp > 1, 1 + plans.context, 0)]
    columns = [(plans.sequence_parallel & (plans.tp > 1)).astype(np.int64), when, context]
    for rows in distinct(columns).groups():
        sequence, of_rows, form = (int(column[rows[0]]) for column in columns)
        gather, reduce = different[of_rows]
        yield (
            rows,
            Mode(sequence_parallel=bool(sequence), gather=gather, reduce=reduce, context=forms[form]),
        )


def _of_any_degree(context: Context) -> Context:
    """Return the form; in two dimensions with the least inner degree."""
    return context.model_copy(update={"ulysses": 2}) if context.two_dimensional else context


def modes_exchange_states(plans: PlanArrays, setting: Setting) -> NDArray[np.bool_]:
    """Return the mask of plans whose passes gather parameters or reduce gradients."""
    different, when = _when(plans, setting)
    modes = [Mode(sequence_parallel=False, gather=one.gather, reduce=one.reduce) for one in different]
    return np.array([mode.passes_exchange_states for mode in modes], dtype=np.bool_)[when]


def _when(plans: PlanArrays, setting: Setting) -> tuple[list[ExchangeTiming], NDArray[np.int64]]:
    """Return the distinct timings of state exchanges, and the index of each plan's timing."""
    known = [
        [[_moments(name, gather, piped, setting.stack) for piped in (False, True)] for gather in GATHERS]
        for name in SHARDINGS
    ]
    different = list(dict.fromkeys(one for of_name in known for of_gather in of_name for one in of_gather))
    codes = np.array([[[different.index(one) for one in row] for row in rows] for rows in known])
    return different, codes[plans.sharding, plans.gather, (plans.pp > 1).astype(np.int64)]


def _moments(name: ShardingName, gather: str, piped: bool, stack: Stack) -> ExchangeTiming:
    """Return the timing of state exchanges; the usual gather where the plan names none."""
    usual = default_gather(name, 2 if piped else 1)
    return exchange_timing(name, usual if gather == NEVER else gather, stack, pipeline=piped)


def distinct_shapes(plans: PlanArrays, mode: Mode, cases: ConstantCases | None = None) -> Distinct:
    """Plans whose passes differ, and for every plan which of them it equals.

    Data parallelism and pipelines only matter to a pass when it exchanges states, with other ranks or with the host, or
    when another rank order makes strides depend on them; and the number of devices, of which the slowest one counts.
    """
    columns = [plans.cp, plans.tp, plans.ep, plans.etp, plans.micro_batch, plans.vocabulary_ranks]
    columns += [np.asarray(heads_exchanged(plans), dtype=np.int64)]
    columns += [plans.order]
    outer = ~plans.tp_and_cp_inner_by_order[plans.order]
    if mode.passes_exchange_states or outer.any() or some_states_on_hosts(plans):
        matters = outer | mode.passes_exchange_states | some_states_on_hosts(plans)
        columns += [
            np.where(matters, column, 0)
            for column in (plans.dp_replicate, plans.dp_shard, plans.pp, plans.sharding)
        ]
    if plans.several_sizes:
        columns += [plans.devices]
    return distinct(columns if cases is None else [*columns, cases.of])
