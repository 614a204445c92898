"""The form of context parallelism, in one or two dimensions."""

from collections.abc import Iterator
from math import gcd
from operator import attrgetter

import numpy as np

from meshwright.plans.choices.plan_choice import Bools, Choice, ChoiceRuleInput, SearchedChoice, Values
from meshwright.plans.context_parallel import Context, parse_context, shortest
from meshwright.plans.context_parallel_forms import CONTEXT_FORMS
from meshwright.plans.rules.context_parallel import stack_name
from meshwright.plans.setting import Setting


def _usual(setting: Setting) -> Values:
    return (parse_context(setting.stack.contexts[0]),)


def _all(setting: Setting) -> Values:
    """Return the stack's forms; in two dimensions with each inner degree that divides the heads and fits the devices.

    Contiguous pieces are left out: they only make the last rank slower.
    """
    arch, most = setting.model.architecture, setting.cluster.devices // 2
    heads = gcd(arch.heads, arch.kv_heads)
    degrees = [degree for degree in range(2, min(heads, most) + 1) if heads % degree == 0]
    found = [
        context
        for name in setting.stack.contexts
        for context in (
            [Context(form=name.partition("+")[0], ulysses=degree) for degree in degrees]
            if "+" in name
            else [parse_context(name)]
        )
    ]
    return tuple(dict.fromkeys((*_usual(setting), *found)))


def _heads_can_be_exchanged(given: ChoiceRuleInput, context: Context) -> Iterator[tuple[str, Bools]]:
    """Allow forms that the stack has, with whole heads on each rank and a ring between the groups."""
    base, arch, stack = given.base, given.setting.model.architecture, given.setting.stack
    alone = base.cp == 1
    if given.values["context"].index(context):
        yield "equal to a plan with another form of context parallelism: cp = 1", ~alone
    yield (
        f"{stack.id} has no context parallelism by {stack_name(context)}",
        alone | (stack_name(context) in stack.contexts),
    )
    heads = np.where(alone, 1, context.heads(base.cp))
    for name, count in (("heads", arch.heads), ("kv_heads", arch.kv_heads)):
        yield f"ulysses does not divide {name}/tp", (count // base.tp) % heads == 0
    if context.two_dimensional:
        yield "ulysses is no part of cp", alone | ((base.cp % heads == 0) & (base.cp > heads))
    multiple = context.kind.ring_multiple
    if multiple > 1:
        rule = f"{context.form} has a multiple of {multiple} ranks with parts of a sequence"
        yield rule, (base.cp == heads) | (base.cp // heads % multiple == 0)


context = Choice(
    path="layout.context",
    names=tuple(CONTEXT_FORMS),
    parse=parse_context,
    example="ulysses",
    read=attrgetter("layout.context_in_full"),
    write=shortest,
    searched=SearchedChoice(
        usual=_usual,
        every=_all,
        rule=_heads_can_be_exchanged,
        concerned=lambda base: base.cp > 1,
        later=True,
    ),
)
