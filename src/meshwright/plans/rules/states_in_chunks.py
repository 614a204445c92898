"""Rules on model states in chunks (``offload.manager: chunks``): allowed layouts, states and stacks."""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.rules.rule_input import Rule, RuleInput
from meshwright.workload.optimizers import OPTIMIZERS

MANAGER = "offload.manager"
SHARED_BYTES = 2
"""An element of the chunks that parameters and gradients share."""
OWNER = "generic"
"""A stack that keeps states in chunks."""


def chunks_alone(case: RuleInput) -> Iterator[Problem]:
    """Refuse a size without chunks, and chunks with shares of states or of activations."""
    offload = case.plan.offload
    if offload is None:
        return
    if offload.manager is None:
        if offload.chunk_mib is not None:
            rule = "a size of chunks where no manager keeps states in chunks"
            yield Problem("offload.chunk_mib", offload.chunk_mib, rule, "manager: chunks, or take it out")
        return
    others = {"optimizer": offload.shares.optimizer, "parameters": offload.shares.parameters}
    for key, share in {**others, "activations": offload.rule.share}.items():
        if share:
            rule = "chunks hold all states and go where there is room, and activations stay on the device"
            yield Problem(f"offload.{key}", getattr(offload, key), rule, f"take {key} out, or manager out")


def chunks_of_a_step(case: RuleInput) -> Iterator[Problem]:
    """Refuse steps that do not walk one order of chunks once forward and once back."""
    plan = case.plan
    if not plan.in_chunks:
        return
    if case.pp > 1:
        rule = "chunks move in the order of one rank's passes over the whole model"
        yield Problem("layout.pp", case.pp, rule, "pp: 1")
    if case.arch.moe is not None:
        rule = "experts that routers choose have no known order"
        yield Problem(MANAGER, plan.offload and plan.offload.manager, rule, "a dense model, or take it out")
    if case.micro_batches is not None and case.micro_batches > 1:
        rule = "gradients take the chunks of their parameters, so a step is one micro-batch"
        hint = "a smaller global_batch, or a larger micro_batch"
        yield Problem("workload.global_batch", case.micro_batches, f"{rule}, not {case.micro_batches}", hint)
    cut = case.grid.dp_shard * case.grid.cp > 1
    if case.grid.dp_replicate > 1 or (cut and plan.sharding != "zero3"):
        rule = "ranks own whole chunks of states that none of them repeats"
        yield Problem("sharding", plan.sharding, rule, "sharding: zero3 over all data-parallel ranks")
    if plan.sharding == "zero3" and plan.gather != "per-layer":
        rule = f"chunks are gathered as layers need them, and gather is {plan.gather}"
        yield Problem("gather", plan.gather, rule, "gather: per-layer")


def chunks_of_states(case: RuleInput) -> Iterator[Problem]:
    """Refuse states that have no chunks of equal elements, and clusters whose hosts are not known."""
    plan = case.plan
    if not plan.in_chunks:
        return
    optimizer = plan.workload.optimizer_in_full
    if optimizer.name in OPTIMIZERS and optimizer.kind.of_matrices:
        rule = f"chunks are stepped element by element, and {optimizer.name} multiplies matrices"
        yield Problem(MANAGER, "chunks", rule, "take it out, or optimizer: adamw")
    written = plan.written_types.get("gradient")
    wide = written == "fp32" if written else case.stack.gradient_bytes > SHARED_BYTES
    if wide:
        rule = "gradients take the chunks of 16-bit parameters"
        yield Problem("dtypes.gradient", written or "fp32", rule, "dtypes.gradient: the 16-bit type")
    for index, pool in enumerate(case.cluster.pools):
        node = pool.node
        known = {
            "host_gbyte_per_s_per_device": node.host_bytes_per_s,
            "host_memory_gib": node.host_memory_bytes,
            "host_memory_gbyte_per_s": node.host_memory_bytes_per_s,
        }
        for key, value in known.items():
            if value is None:
                rule = f"nobody has said what {node.name} has, and chunks are in the memory of its host"
                yield Problem(f"cluster.pools.{index}.node.{key}", None, rule, f"a cluster file with {key}")


def chunks_by_stack(case: RuleInput) -> Iterator[Problem]:
    """Refuse chunks if the stack keeps no states in chunks."""
    if case.plan.in_chunks and not case.stack.keeps_chunks:
        hint = f"take manager out, or stack: {OWNER}"
        yield Problem(MANAGER, "chunks", f"{case.stack.id} keeps no states in chunks", hint)


CHUNK_RULES: tuple[Rule, ...] = (chunks_alone, chunks_of_a_step, chunks_of_states)
