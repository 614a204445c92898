"""Combine options of a run with those of its plan's optimizer: what a run gives replaces what the plan says.

``beta1`` and ``beta2``, ``eps`` and ``weight_decay`` are for the plan's optimizer, and for the one that takes the rest
beside Muon, where they have such an option.
"""

from collections.abc import Mapping
from dataclasses import replace

from meshwright.errors import InputError, Problem
from meshwright.runtime.state.step_options import StepOptions
from meshwright.runtime.training.options import TrainingOptions
from meshwright.workload.optimizer_choice import Optimizer
from meshwright.workload.optimizers.optimizer_kind import Value

OPTION_OF = {"beta1": "betas", "beta2": "betas", "eps": "epsilon", "weight_decay": "weight_decay"}
"""The optimizer's option that an option of a run replaces, or a part of it."""


def with_plan_values(options: TrainingOptions, optimizer: Optimizer) -> TrainingOptions:
    """Return the options with the plan's values where a run gives none. Raises InputError for those without use."""
    known = optimizer.others.options | optimizer.options
    given = {name: getattr(options, name) for name in OPTION_OF}
    problems = [
        Problem(name, value, f"{optimizer.name} has no {OPTION_OF[name]}", "leave it out")
        for name, value in given.items()
        if value is not None and OPTION_OF[name] not in known
    ]
    if problems:
        raise InputError(problems)
    return replace(
        options, **{n: _of_plan(n, known) if value is None else value for n, value in given.items()}
    )


def optimizer_options(options: TrainingOptions) -> StepOptions:
    """Return the optimizer's part of the options."""
    betas = options.beta1, options.beta2
    return StepOptions(
        lr=options.lr,
        betas=None if betas[0] is None or betas[1] is None else (betas[0], betas[1]),
        epsilon=options.eps,
        weight_decay=options.weight_decay,
        clip=options.clip or None,
    )


def _of_plan(name: str, known: Mapping[str, Value]) -> float | None:
    value = known.get(OPTION_OF[name])
    if isinstance(value, tuple):
        return value[0 if name == "beta1" else 1]
    return float(value) if isinstance(value, int | float) else None
