"""Limits of Meshwright's own runtime on model states in host memory."""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.forms.host_offload import HostShares, share_number
from meshwright.plans.rules.stack_limits.plan_values import PlanValues

NOT_RUN = "can be predicted, not run yet"
SCALED = ("fp16", "fp8")
"""Types of moments with one scale for each piece of a parameter."""
MOMENTS = ("first_moment", "second_moment")
SUMS = ("gradient", "reduce")
WIDE = "fp32"


def host_state_limits(plan: PlanValues) -> Iterator[Problem]:
    """Yield what keeps a plan with states on the host from being run."""
    if plan.in_chunks:
        yield Problem("offload.manager", "chunks", f"states in chunks: {NOT_RUN}", "take manager out")
    shares = HostShares(share_number(plan.offloaded_optimizer), share_number(plan.offloaded_parameters))
    if not shares.some:
        return
    key = "offload.optimizer" if shares.optimizer else "offload.parameters"
    if plan.schedule.step_validation == "after":
        rule = f"copies of states on the host, which undo a step: {NOT_RUN}"
        yield Problem("pipeline.schedule.step_validation", "after", rule, "step_validation: before")
    if plan.workload.adapter is not None:
        rule = f"states on the host of adapters: {NOT_RUN}"
        yield Problem(key, plan.workload.adapter.form, rule, "take offload out")
    if plan.workload.optimizer.forward_only:
        rule = f"parameters on the host that forward passes perturb: {NOT_RUN}"
        yield Problem(key, plan.offloaded_parameters, rule, "take offload out")
    if plan.arch.next_token_layers:
        rule = f"states on the host of layers that predict further tokens: {NOT_RUN}"
        yield Problem(key, plan.arch.next_token_layers, rule, "take offload out")
    if plan.workload.optimizer.kind.of_matrices and not shares.optimizer:
        name = plan.workload.optimizer.name
        rule = f"parameters on the host that {name} steps as matrices: {NOT_RUN}"
        yield Problem(key, plan.offloaded_parameters, rule, "take it out, or optimizer: adamw")
    yield from _types(plan, shares)


def _types(plan: PlanValues, shares: HostShares) -> Iterator[Problem]:
    types = plan.dtypes
    if types.get("master") == "none":
        rule = f"the host steps a master copy, and there is none: {NOT_RUN}"
        yield Problem("dtypes.master", "none", rule, f"dtypes.master: {WIDE}")
    for key in SUMS if shares.optimizer else ():
        if types.get(key, WIDE) != WIDE:
            rule = f"the host sums gradients in {WIDE}: another type is {NOT_RUN}"
            yield Problem(f"dtypes.{key}", types[key], rule, f"dtypes.{key}: {WIDE}")
    for key in MOMENTS if 0 < shares.optimizer < 1 else ():
        if types.get(key) in SCALED:
            rule = f"a share of a moment whose scale is that of a whole piece {NOT_RUN}"
            yield Problem(f"dtypes.{key}", types[key], rule, "offload.optimizer: all")
