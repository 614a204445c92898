"""Rules on element types of model states: types that the precision allows, and that the stack supports."""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.stack.state_types import (
    MOMENTS,
    OPTIMIZER_STATES,
    SCALED,
    allowed_types,
    half_of,
    is_narrow,
    split_joints,
    types_of,
    usual_types,
)
from meshwright.workload.optimizers import OPTIMIZERS

EIGHT_BITS = ("fp8", "mxfp8")
SIXTEEN_BITS = ("bf16", "fp16")


def types_of_the_precision(case: RuleInput) -> Iterator[Problem]:
    """Gradients and what is sent have fp32 or the 16-bit type of the precision; only 8-bit ones gather fp8."""
    written, workload = case.plan.written_types, case.workload
    if workload is None:
        return
    precision, half = workload.precision, half_of(workload.precision)
    for key, value in written.items():
        if _is_of_another_precision(key, value, precision):
            rule = f"the 16-bit type of precision {precision} is {half}"
            if value == "fp8":
                rule = f"parameters are fp8 on the wire where products are, and the precision is {precision}"
            yield Problem(f"dtypes.{key}", value, rule, f"{_name(key)}: {half}")


def types_of_the_optimizer(case: RuleInput) -> Iterator[Problem]:
    """Refuse types of moments that the optimizer does not keep; Muon's own has no scales."""
    optimizer, written = case.plan.workload.optimizer_in_full, case.plan.written_types
    if optimizer.name not in OPTIMIZERS or any(True for _ in optimizer.problems()):
        return
    for key in MOMENTS:
        if key not in written:
            continue
        if key not in optimizer.moments:
            rule = f"is no state of {optimizer}"
            yield Problem(f"dtypes.{key}", written[key], rule, "optimizer: adamw, or take it out")
        elif optimizer.kind.of_matrices and key in optimizer.own_moments and written[key] in SCALED:
            rule = "the momentum of muon is fp32 or bf16"
            yield Problem(f"dtypes.{key}", written[key], rule, f"{key}: bf16")


def state_types_by_stack(case: RuleInput) -> Iterator[Problem]:
    """Refuse types that the stack does not run, or not together, or not under this sharding."""
    written, workload, stack = case.plan.written_types, case.workload, case.stack
    if workload is None or not written:
        return
    precision = workload.precision
    usual, known = usual_types(stack, precision), allowed_types(stack, precision)
    unlike = {key for key, value in written.items() if _is_of_another_precision(key, value, precision)}
    for key, value in written.items():
        if value not in known[key] and key not in unlike:
            rule = f"{stack.id} has {' or '.join(known[key])} here"
            yield Problem(f"dtypes.{key}", value, rule, f"{_name(key)}: {known[key][0]}")
    if any(value not in known[key] for key, value in written.items()):
        return
    types = types_of(stack, precision, written)
    for joint, rest in split_joints(stack, precision, types):
        changed = next(key for key in joint if key not in rest)
        rule = f"{stack.id} changes {', '.join(joint)} together, and {', '.join(rest)} stays as usual"
        yield Problem(f"dtypes.{changed}", getattr(types, changed), rule, f"take {rest[0]} out")
    narrow = is_narrow(stack, precision, types)
    if narrow and stack.narrow_shardings and case.plan.sharding not in stack.narrow_shardings:
        key = next(key for key in OPTIMIZER_STATES if getattr(types, key) != getattr(usual, key))
        rule = f"{stack.id} keeps narrow optimizer states with sharding {' or '.join(stack.narrow_shardings)} only"
        yield Problem(f"dtypes.{key}", getattr(types, key), rule, f"sharding: {stack.narrow_shardings[0]}")


def _is_of_another_precision(key: str, value: str, precision: str) -> bool:
    """Return true for what ``types_of_the_precision`` refuses."""
    if key == "gather" and value == "fp8":
        return precision not in EIGHT_BITS
    return key in ("gradient", "reduce", "gather") and value in SIXTEEN_BITS and value != half_of(precision)


def _name(key: str) -> str:
    """Return a key as a plan's settings have it; ``gather`` alone is when parameters are gathered."""
    return f"dtypes.{key}" if key == "gather" else key


TYPE_RULES: tuple[Rule, ...] = (types_of_the_precision, types_of_the_optimizer)
