"""Return the learning rates of a run from its options, for rules that set the periods of ``synchronise``."""

from collections.abc import Mapping
from dataclasses import replace

from meshwright.errors import InputError, Problem
from meshwright.plans.resolve import Resolved

WITHOUT_RULE = (
    "--steps, --lr, --warmup, --schedule and --lr-floor have no effect: no entry of synchronise has a rule, such as "
    "every: {qsr: {base: 4, alpha: 0.0175}}"
)
NEEDS_STEPS = ("lr", "schedule", "warmup_steps", "lr_floor")


def with_run_rates(resolved: Resolved, options: Mapping[str, object]) -> Resolved:
    """Return a plan with the learning rates of a run; options that are None keep their defaults.

    Raises InputError for values out of range, and for other options without ``steps``.
    """
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        return resolved
    if "steps" not in given:
        name = next(iter(given))
        rule = "says how the learning rate falls, and without the number of steps it does not"
        raise InputError(Problem(name, given[name], rule, "--steps 10000"))
    from meshwright.runtime.training.options import TrainingOptions

    run = TrainingOptions(**given)  # type: ignore[arg-type]
    return replace(resolved, setting=replace(resolved.setting, rates=run.rates))
