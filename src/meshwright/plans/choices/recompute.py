"""Recomputation in the backward pass, by name or as a set of operators."""

from collections.abc import Iterator
from typing import get_args

import numpy as np

from meshwright.plans.choices.plan_choice import Bools, Choice, ChoiceRuleInput, SearchedChoice, Values
from meshwright.plans.choices.recompute_sets import operator_sets
from meshwright.plans.forms.short import RecomputeName, RecomputeOperator
from meshwright.plans.forms.spellings import RECOMPUTES as SPELLINGS
from meshwright.plans.rules.stack_support import recomputable
from meshwright.plans.setting import Setting

RECOMPUTES: tuple[RecomputeName, ...] = get_args(RecomputeName)


def _named(setting: Setting) -> Values:
    return tuple(name for name in RECOMPUTES if name in setting.stack.recomputes)


def _recomputable(given: ChoiceRuleInput, chosen: str | tuple[str, ...]) -> Iterator[tuple[str, Bools]]:
    """Allow what the stack can recompute and the model has."""
    stack, model = given.setting.stack, given.setting.model
    names = (chosen,) if isinstance(chosen, str) else chosen
    have = recomputable(model.architecture)
    for name in names:
        if name not in stack.recomputes or (names is chosen and name not in have):
            owner = stack.id if name not in stack.recomputes else model.name
            yield f"{owner} has no recomputation of {name}", np.zeros(len(given.base), dtype=np.bool_)


recompute = Choice(
    path="recompute",
    names=RECOMPUTES,
    spellings=SPELLINGS,
    listed=get_args(RecomputeOperator),
    searched=SearchedChoice(
        usual=_named,
        every=lambda setting: (*_named(setting), *operator_sets(setting)),
        rule=_recomputable,
    ),
)
