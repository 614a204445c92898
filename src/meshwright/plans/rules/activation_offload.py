"""Rules on offload: the cluster states the host's link and memory, and the stack keeps activations there."""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.schedules.activation_offload import OffloadedStages, with_offloads
from meshwright.schedules.choice import known_kind
from meshwright.stack.stack import OWN_STACK

FEW = 8
"""Micro-batches that show whether anything goes out where there is one pipeline rank."""


def offloading(case: RuleInput) -> Iterator[Problem]:
    """Refuse offload if a node lacks the rate of its host link, or size or bandwidth of its host memory."""
    offload = case.plan.offload
    if offload is None or not (offload.rule.share or offload.shares.some):
        return
    for index, pool in enumerate(case.cluster.pools):
        where, node = f"cluster.pools.{index}.node", pool.node
        if node.host_bytes_per_s is None:
            rule = f"nobody has said how fast {node.name}'s devices reach the host's memory, and offload copies there"
            hint = "a cluster file whose node has host_gbyte_per_s_per_device (PCIe 5.0 x16 is 63)"
            yield Problem(f"{where}.host_gbyte_per_s_per_device", None, rule, hint)
        if node.host_memory_bytes is None:
            rule = f"nobody has said how large the memory of {node.name} is, and offload fills it"
            yield Problem(
                f"{where}.host_memory_gib", None, rule, "a cluster file whose node has host_memory_gib"
            )
        if offload.shares.optimizer and node.host_memory_bytes_per_s is None:
            rule = f"nobody has said how fast the memory of {node.name} is, and the optimizer steps there"
            hint = "a cluster file whose node has host_memory_gbyte_per_s (16 channels of DDR5-4800 are 614)"
            yield Problem(f"{where}.host_memory_gbyte_per_s", None, rule, hint)


def offloading_by_stack(case: RuleInput) -> Iterator[Problem]:
    """Refuse offload if the stack keeps no activations on the host."""
    offload, stack = case.plan.offload, case.stack
    if offload is not None and offload.rule.share and not stack.offloads_activations:
        rule = f"{stack.id} does not keep activations of passes on the host"
        hint = f"take offload out, or stack: {OWN_STACK}"
        yield Problem("offload.activations", offload.activations, rule, hint)


def offload_has_effect(case: RuleInput) -> Iterator[Problem]:
    """Warn if no pass is offloaded: with pp = 1 a backward pass follows its forward pass at once."""
    offload, choice = case.plan.offload, case.plan.pipeline.schedule.choice
    kind, count = known_kind(choice), case.micro_batches
    if offload is None or not offload.rule.share or case.pp > 1 or kind is None or kind.only or count is None:
        return
    chunks = case.plan.pipeline.virtual_stages
    if (
        choice.form is not None
        or choice.fault(1, count)
        or (choice.in_flight or chunks) < chunks
        or (kind.fixed_chunks or chunks) != chunks
        or count % kind.micro_batch_multiple(1)
    ):
        return
    lists = choice.lists(1, min(count, FEW), chunks)
    copied = with_offloads(lists, OffloadedStages(frozenset(range(chunks)), offload.ahead))
    if sum(map(len, copied)) == sum(map(len, lists)):
        rule = f"nothing goes out: no pass waits for its backward pass while {offload.ahead + 2} others run"
        yield Problem(
            "offload.activations", offload.activations, rule, "pp > 1, or take offload out", "warning"
        )


OFFLOAD_RULES: tuple[Rule, ...] = (offloading, offload_has_effect)
