"""Check uneven shares of the states: weights of the ranks of the axes that shard them."""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.forms.long import NOT_YET, SPREAD
from meshwright.plans.layers.plan_of_layout import state_weights
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.stack.stack import OWN_STACK
from meshwright.workload.optimizers import OPTIMIZERS

WIDE = "fp32"


def weights(case: RuleInput) -> Iterator[Problem]:
    """Require a weight for each rank of the axes that shard states, none negative and not all zero."""
    share, grid = state_weights(case.layout), case.grid
    if share is None:
        return
    field, count = _field(case), grid.dp_shard * grid.cp
    if case.plan.sharding == "none":
        rule = "no state is sharded, so there is nothing to share"
        yield Problem(field, list(share), rule, "state_share: even, or states: {optimizer: [dp_shard, cp]}")
    if any(one < 0 for one in share) or not any(share):
        rule = "weights are whole numbers from 0, and one of them is larger"
        yield Problem(field, list(share), rule, str([max(0, one) for one in share] if any(share) else "even"))
    if len(share) != count:
        rule = f"{len(share)} weights ≠ dp_shard·cp = {grid.dp_shard}·{grid.cp} = {count} ranks that share states"
        yield Problem(field, list(share), rule, f"{count} weights")


def not_with_uneven_states(case: RuleInput) -> Iterator[Problem]:
    """Refuse what this release does with equal shards only."""
    if state_weights(case.layout) is not None:
        for field, value, what, hint in _even_only(case):
            yield Problem(field, value, f"{what} with state_share {NOT_YET}", hint)


def _even_only(case: RuleInput) -> Iterator[tuple[str, object, str, str]]:
    """Yield a field, its value, what it is, and a suggestion."""
    plan, spec = case.plan, case.plan.workload
    schedule, placement = plan.pipeline.schedule, plan.pipeline.placement
    kind = OPTIMIZERS.get(spec.optimizer_in_full.name)
    if case.arch.moe is not None:
        yield "model", plan.model, "experts, whose states lie on a mesh of their own,", "state_share: even"
    if kind is not None and (kind.of_matrices or spec.optimizer_in_full.forward_only):
        yield "workload.optimizer", spec.optimizer_in_full.name, spec.optimizer_in_full.name, "adamw"
    if spec.adapter is not None:
        yield "workload.adapter", spec.adapter.form, "adapters", "task: pretrain"
    if plan.in_chunks or plan.host_shares.some:
        yield "offload", plan.offload and plan.offload.to_data(), "model states on hosts", "activations alone"
    if case.grid.dp_replicate > 1:
        yield "layout.dp_replicate", case.grid.dp_replicate, "replicas of shards", "dp_replicate: 1"
    if case.model.tied_gradients and placement[0] != placement[-1]:
        yield "pipeline.placement", list(placement), "a tied table of two stages", "a model with two tables"
    if plan.pipeline.chains > 1:
        yield "pipeline.schedule", schedule.name, "a schedule in two directions", "1f1b"
    if schedule.step_validation == "after":
        field = "pipeline.schedule.step_validation"
        yield field, "after", "steps that are validated afterwards", "before"
    if any(rule.vocabulary == SPREAD for rule in plan.layers.values()):
        yield "layers.embed.vocabulary", list(SPREAD), "a vocabulary over all pipeline ranks", "[tp]"
    if plan.gather == "per-unit":
        yield "gather", plan.gather, "exchanges unit by unit", "gather: per-step"
    for key in ("gradient", "reduce"):
        if plan.written_types.get(key, WIDE) != WIDE:
            yield f"dtypes.{key}", plan.written_types[key], "gradients in a narrow type", f"{key}: {WIDE}"


def state_shares_by_stack(case: RuleInput) -> Iterator[Problem]:
    """Refuse weights if the stack cuts states evenly."""
    share = state_weights(case.layout)
    if share is not None and not case.stack.uneven_shares:
        rule = f"{case.stack.id} cuts states evenly"
        yield Problem(_field(case), list(share), rule, f"stack: {OWN_STACK}, or state_share: even")


def _field(case: RuleInput) -> str:
    return f"layouts.{case.layout_name}.state_share"


STATE_SHARE_RULES: tuple[Rule, ...] = (weights, not_with_uneven_states)
