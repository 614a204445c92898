"""Choices that variants of a plan make: who may choose what, which values plans usually have, and what rules say.

Each is a line of ``SEARCHED_CHOICES`` for a coded choice (``plans/arrays/coded_choices.py``). A base plan stays as
it is where a choice does not apply to it. Rules are asked of a variant and of all base plans at once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import gcd
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from meshwright.plans.arrays.coded_choices import RECOMPUTES
from meshwright.plans.arrays.plan_arrays import PlanArrays
from meshwright.plans.context_parallel import Context, parse_context
from meshwright.plans.forms.short import DEFAULT_RANK_ORDER, Axis, Offload
from meshwright.plans.rules.context_parallel import stack_name
from meshwright.plans.rules.degrees import experts_need_sequences
from meshwright.plans.rules.stack_limits.limits import StackLimit
from meshwright.plans.rules.stack_support import recomputable
from meshwright.plans.setting import Setting
from meshwright.search.space.constraints import Kept
from meshwright.search.space.recompute_sets import operator_sets
from meshwright.search.space.stack_limits_of_rows import StackLimitsOfRows

AXES = DEFAULT_RANK_ORDER
SHARES: tuple[Literal["all"] | float, ...] = ("all", 0.5, 0.25)
AHEAD = (1, 2)
Bools = NDArray[np.bool_]
Values = tuple[Any, ...]
Order = tuple[Axis, ...]


@dataclass(frozen=True)
class ChoiceContext:
    """What rules look at: base plans, what is asked for, all that variants may choose by column, the stack's limits.

    ``known`` keeps which base plans a limit allows, by the codes of the choices that it reads.
    """

    base: PlanArrays
    setting: Setting
    values: Mapping[str, Values]
    wishes: Callable[[str], Iterable[tuple[Kept, bool]]]
    limits: StackLimitsOfRows
    known: dict[tuple[StackLimit, tuple[tuple[str, int], ...]], Bools] = field(default_factory=dict)


Rule = Callable[[ChoiceContext, Any], Iterator[tuple[str, Bools]]]
"""Asked of a variant's value: reasons, and the base plans that may have it."""


@dataclass(frozen=True, kw_only=True)
class SearchedChoice:
    """A choice of variants: its ``usual`` values, all that a stack leaves to plans, and those who are ``concerned``.

    Plans whose value is another than the first one must be ``played``: they only come with usual values of the others.
    What is chosen ``later`` bounds leave open (``deferred_choice.py``); there is one such choice.
    """

    usual: Callable[[Setting], Values]
    every: Callable[[Setting], Values]
    rule: Rule
    concerned: Callable[[PlanArrays], Bools] | None = None
    played: bool = False
    later: bool = False

    def concerns(self, base: PlanArrays) -> Bools:
        """Plans that the choice is one of; the others have its first value."""
        return np.ones(len(base), dtype=np.bool_) if self.concerned is None else self.concerned(base)

    def codes(self, base: PlanArrays, code: int) -> NDArray[np.int64]:
        """The code of every plan where it has this one as far as the choice concerns it."""
        every = np.full(len(base), code, dtype=np.int64)
        return every if self.concerned is None else np.where(self.concerned(base), every, 0)


def _named(setting: Setting) -> Values:
    return tuple(name for name in RECOMPUTES if name in setting.stack.recomputes)


def _can_be_run_again(asked: ChoiceContext, chosen: str | tuple[str, ...]) -> Iterator[tuple[str, Bools]]:
    """The stack runs it again, and the model has it."""
    stack = asked.setting.stack
    names = (chosen,) if isinstance(chosen, str) else chosen
    have = recomputable(asked.setting.model.architecture)
    for name in names:
        if name not in stack.recomputes or (names is chosen and name not in have):
            whose = stack.id if name not in stack.recomputes else asked.setting.model.name
            yield f"{whose} has no recomputation of {name}", np.zeros(len(asked.base), dtype=np.bool_)


def _usual_sequences(setting: Setting) -> Values:
    return (setting.stack.sequence_parallel,)


def _all_sequences(setting: Setting) -> Values:
    return (True, False) if setting.stack.chooses_sequence_parallelism else _usual_sequences(setting)


def _sequences_are_cut(asked: ChoiceContext, cut: bool) -> Iterator[tuple[str, Bools]]:
    """Sequences can be cut over tp, or left whole."""
    base, seq_len = asked.base, asked.setting.workload.seq_len
    if cut:
        stack = asked.setting.stack
        yield f"{stack.id} has no sequence parallelism", (base.tp == 1) | stack.sequence_parallel
        whole = (base.tp == 1) | (seq_len % (base.cp * base.tp) == 0)
        yield f"cp·tp does not divide seq_len = {seq_len}", whole
        return
    if True in asked.values["sequence_parallel"]:
        yield "equal to a plan with sequence parallelism: tp = 1", base.tp > 1
    if asked.setting.model.architecture.moe is not None:
        yield experts_need_sequences(), base.tp == 1


def _all_orders(setting: Setting) -> Values:
    return (DEFAULT_RANK_ORDER, *setting.stack.rank_orders)


def _orders_differ(asked: ChoiceContext, own: Order) -> Iterator[tuple[str, Bools]]:
    """Orders turn ranks of degrees above 1, and leave those of a stage together where there are experts."""
    base, orders = asked.base, asked.values["order"]
    code = orders.index(own)
    if code:
        above = sum((getattr(base, axis) > 1).astype(np.int64) << i for i, axis in enumerate(AXES))
        turned = [[_of_axes(order, which) for order in orders] for which in range(2 ** len(AXES))]
        new = np.array([rows[code] not in rows[:code] for rows in turned])
        yield "equal to a plan with another rank order", new[above]
    if asked.setting.model.architecture.moe is not None and own[-1] != "pp":
        yield "the experts' mesh has pp last", base.pp == 1


def _of_axes(order: Order, which: int) -> Order:
    """The order of those axes whose bits are set."""
    return tuple(axis for axis in order if which >> AXES.index(axis) & 1)


def _holds_activations(setting: Setting) -> bool:
    """The stack leaves activations on hosts, and the cluster says how large these are and how fast they are reached."""
    hosts = [(pool.node.host_bytes_per_s, pool.node.host_memory_bytes) for pool in setting.cluster.pools]
    return setting.stack.offloads_activations and not any(None in host for host in hosts)


def _all_offloads(setting: Setting) -> Values:
    shares = [Offload(activations=share, ahead=ahead) for share in SHARES for ahead in AHEAD]
    return (Offload(), *(shares if _holds_activations(setting) else ()))


def _goes_out(asked: ChoiceContext, own: Offload) -> Iterator[tuple[str, Bools]]:
    """Activations go out of a pipeline, to hosts that hold them."""
    if own.rule.share:
        rule = f"{asked.setting.stack.id} keeps no activations on hosts like these"
        yield rule, np.full(len(asked.base), _holds_activations(asked.setting))
        yield "without a pipeline (pp = 1) no activations go out", asked.base.pp > 1


def _usual_contexts(setting: Setting) -> Values:
    return (parse_context(setting.stack.contexts[0]),)


def _all_contexts(setting: Setting) -> Values:
    """The stack's forms; in two dimensions with every inner degree that divides the heads, as far as there are ranks.

    Contiguous pieces are left out: they only make the last rank slower.
    """
    arch, most = setting.model.architecture, setting.cluster.devices // 2
    heads = gcd(arch.heads, arch.kv_heads)
    degrees = [degree for degree in range(2, min(heads, most) + 1) if heads % degree == 0]
    found = [
        context
        for name in setting.stack.contexts
        for context in (
            [Context(form=name.partition("+")[0], ulysses=degree) for degree in degrees]  # type: ignore[arg-type]
            if "+" in name
            else [parse_context(name)]
        )
    ]
    return tuple(dict.fromkeys((*_usual_contexts(setting), *found)))


def _heads_can_be_exchanged(asked: ChoiceContext, context: Context) -> Iterator[tuple[str, Bools]]:
    """The stack has the form; ranks that exchange heads have whole ones; a ring is left between them."""
    base, arch, stack = asked.base, asked.setting.model.architecture, asked.setting.stack
    alone = base.cp == 1
    if asked.values["context"].index(context):
        yield "equal to a plan with another form of context parallelism: cp = 1", ~alone
    yield (
        f"{stack.id} has no context parallelism by {stack_name(context)}",
        alone | (stack_name(context) in stack.contexts),
    )
    heads = np.where(alone, 1, context.heads(base.cp))  # type: ignore[arg-type]
    for name, count in (("heads", arch.heads), ("kv_heads", arch.kv_heads)):
        yield f"ulysses does not divide {name}/tp", (count // base.tp) % heads == 0
    if context.two_dimensional:
        yield "ulysses is no part of cp", alone | ((base.cp % heads == 0) & (base.cp > heads))


SEARCHED_CHOICES: Mapping[str, SearchedChoice] = {
    "sequence_parallel": SearchedChoice(
        usual=_usual_sequences,
        every=_all_sequences,
        rule=_sequences_are_cut,
        concerned=lambda base: base.tp > 1,
    ),
    "recompute": SearchedChoice(
        usual=_named,
        every=lambda setting: (*_named(setting), *operator_sets(setting)),
        rule=_can_be_run_again,
    ),
    "context": SearchedChoice(
        usual=_usual_contexts,
        every=_all_contexts,
        rule=_heads_can_be_exchanged,
        concerned=lambda base: base.cp > 1,
        later=True,
    ),
    "order": SearchedChoice(
        usual=lambda setting: (DEFAULT_RANK_ORDER,), every=_all_orders, rule=_orders_differ
    ),
    "offload": SearchedChoice(
        usual=lambda setting: (Offload(),), every=_all_offloads, rule=_goes_out, played=True
    ),
}
"""By column; variants that differ in the last ones stand together."""
DEFERRED_CHOICES = next(name for name, choice in SEARCHED_CHOICES.items() if choice.later)
"""The column of what is chosen later."""
