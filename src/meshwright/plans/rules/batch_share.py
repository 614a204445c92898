"""Check uneven shares of the batch: how many sequences of a micro-batch each data-parallel replica of a layout takes.

The replicas of a layout with ``batch_share`` take so many sequences each, dp_replicate outermost; their sum moves
through the pipeline together. ``batch_and_pipeline`` divides the global batch by that sum, ``layouts`` the sum by the
replicas of layouts without shares.
"""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.forms.long import NOT_YET, SPREAD, Layout
from meshwright.plans.layers.plan_of_layout import replicas, uneven_batches
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.stack.stack import OWN_STACK
from meshwright.workload.optimizers import OPTIMIZERS


def share_values(case: RuleInput) -> Iterator[Problem]:
    """Require a positive number of sequences for each replica."""
    for field, layout, share in _shares(case):
        count, grid = replicas(layout), layout.grid
        if any(one < 1 for one in share):
            rule = "each replica has a whole number of sequences from 1"
            yield Problem(field, list(share), rule, str([max(1, one) for one in share]))
        if len(share) != count:
            rule = (
                f"{len(share)} shares ≠ dp_replicate·dp_shard = {grid.dp_replicate}·{grid.dp_shard} = "
                f"{count} replicas"
            )
            yield Problem(field, list(share), rule, f"{count} numbers of sequences")


def share_unit(case: RuleInput) -> Iterator[Problem]:
    """Require a micro-batch of 1, which shares multiply."""
    micro_batch = case.plan.pipeline.micro_batch
    if uneven_batches(case.plan) and micro_batch != 1:
        rule = "batch_share counts the sequences of every replica, so micro_batch is 1"
        yield Problem("pipeline.micro_batch", micro_batch, rule, "micro_batch: 1")


def equal_sums(case: RuleInput) -> Iterator[Problem]:
    """Require layouts with shares to move equally many sequences together."""
    first: tuple[str, int] | None = None
    for field, _, share in _shares(case):
        total = sum(share)
        first = first or (field, total)
        if total != first[1]:
            rule = f"{' + '.join(map(str, share))} = {total} ≠ {first[1]}, the sum of {first[0]}"
            yield Problem(field, list(share), rule, f"shares that sum to {first[1]}")


def not_with_shares(case: RuleInput) -> Iterator[Problem]:
    """Refuse what this release does with equal replicas only."""
    if not uneven_batches(case.plan):
        return
    for field, value, what, hint in _even_only(case):
        yield Problem(field, value, f"{what} with batch_share {NOT_YET}", hint)


def _even_only(case: RuleInput) -> Iterator[tuple[str, object, str, str]]:
    """Yield a field, its value, what it is, and a suggestion."""
    spec = case.plan.workload
    if case.arch.moe is not None:
        yield (
            "model",
            case.plan.model,
            "experts, to which replicas send tokens together,",
            "take batch_share out",
        )
    kind = OPTIMIZERS.get(spec.optimizer_in_full.name)
    if kind is not None and spec.optimizer_in_full.forward_only:
        yield (
            "workload.optimizer",
            spec.optimizer_in_full.name,
            "an optimizer without backward passes",
            "adamw",
        )
    if spec.adapter is not None:
        yield "workload.adapter", spec.adapter.form, "adapters", "task: pretrain"
    if any(rule.vocabulary == SPREAD for rule in case.plan.layers.values()):
        yield "layers.embed.vocabulary", list(SPREAD), "a vocabulary over all pipeline ranks", "[tp]"
    if case.plan.in_chunks:
        yield "offload.manager", "chunks", "states in chunks", "take manager out"


def shares_by_stack(case: RuleInput) -> Iterator[Problem]:
    """Refuse shares if the stack gives all replicas equally many sequences."""
    for field, _, share in _shares(case):
        if not case.stack.uneven_shares:
            rule = f"{case.stack.id} gives all replicas equally many sequences"
            yield Problem(field, list(share), rule, f"stack: {OWN_STACK}, or take it out")


def _shares(case: RuleInput) -> Iterator[tuple[str, Layout, tuple[int, ...]]]:
    """Yield the field, the layout and the numbers of each written share."""
    for name, layout in case.plan.layouts.items():
        if layout.batch_share is not None:
            yield f"layouts.{name}.batch_share", layout, layout.batch_share


SHARE_RULES: tuple[Rule, ...] = (share_values, share_unit, equal_sums, not_with_shares)
