"""Limits of torchtitan 0.3.0.

Sources: torchtitan 0.3.0, ``distributed/parallel_dims.py``, ``distributed/pipeline_parallel.py``,
``distributed/full_dtensor.py``, ``models/common/decoder.py``, ``models/common/moe_sharding.py``, ``trainer.py``.
"""

from collections.abc import Iterator

from meshwright.errors import Problem
from meshwright.plans.rules.stack_limits.limits import StackLimit, limit
from meshwright.plans.rules.stack_limits.plan_values import PlanValues
from meshwright.plans.rules.stack_limits.target_limits import (
    expert_replicas,
    experts_order,
    next_tokens,
    schedule_without_pipeline,
)
from meshwright.workload.optimizer_choice import ADAMW

SHARDED = "sharding: zero3"


@limit("shards states over cp", "cp", "sharding")
def sharding_with_context(plan: PlanValues) -> Iterator[Problem]:
    """FSDP's mesh is dp_shard·cp."""
    if plan.sharding == "none" and plan.cp > 1:
        rule = f"torchtitan shards states over cp = {plan.cp} > 1"
        yield Problem("sharding", "none", rule, SHARDED)


@limit("cuts experts over tp where ep = 1", "tp", "ep", "etp")
def expert_tensor_parallel(plan: PlanValues) -> Iterator[Problem]:
    """With ep > 1 experts are whole."""
    etp = plan.tp if plan.ep == 1 else 1
    if plan.arch.moe is not None and plan.etp != etp:
        rule = f"with ep = {plan.ep} torchtitan cuts experts over etp = {etp}"
        hint = f"etp: {etp}" if plan.stack.etp else "ep: 2 or more, or tp: 1"
        yield Problem("layout.etp", plan.etp, rule, hint)


@limit(
    "lays ep over a part of dp_shard·cp·tp, and shards experts over the rest",
    "dp_replicate",
    "dp_shard",
    "cp",
    "tp",
    "ep",
    "etp",
    "sharding",
)
def expert_mesh(plan: PlanValues) -> Iterator[Problem]:
    """efsdp = dp_shard·cp·tp / ep is an axis that shards."""
    if plan.arch.moe is None:
        return
    inner = plan.dp_shard * plan.cp * plan.tp
    if inner % plan.ep:
        rule = f"ep = {plan.ep} must divide dp_shard·cp·tp = {plan.dp_shard}·{plan.cp}·{plan.tp} = {inner}"
        yield Problem("layout.ep", plan.ep, rule, f"a divisor of {inner}")
    elif plan.sharded == "none" and plan.ep > 1 and inner != plan.ep:
        rule = f"efsdp = dp_shard·cp·tp / ep = {inner} / {plan.ep} = {inner // plan.ep}: torchtitan shards the experts"
        yield Problem("sharding", "none", rule, SHARDED)


@limit("trains with AdamW only")
def optimizer(plan: PlanValues) -> Iterator[Problem]:
    """No option changes it."""
    if plan.workload.optimizer != ADAMW:
        rule = "torchtitan's configurations set AdamW in Python"
        yield Problem("workload.optimizer", str(plan.workload.optimizer), rule, "optimizer: adamw")


@limit("needs a seq_len that tp·2·cp divides", "tp", "cp", "sequence_parallel")
def sequence_pieces(plan: PlanValues) -> Iterator[Problem]:
    """Ranks of cp have two pieces of a sequence each, and tp cuts these where it cuts sequences."""
    cut = (plan.tp if plan.cuts_sequences else 1) * (2 * plan.cp if plan.cp > 1 else 1)
    length = plan.workload.seq_len
    if length % cut:
        rule = f"seq_len mod tp·2·cp = {length} mod {cut} = {length % cut}, must be 0"
        yield Problem("workload.seq_len", length, rule, f"a multiple of {cut}")


@limit("ties no embeddings under a pipeline", "pp")
def tied_embeddings(plan: PlanValues) -> Iterator[Problem]:
    """Embedding and head are in different stages."""
    if plan.pp > 1 and plan.arch.tied_embeddings:
        rule = f"torchtitan does not tie embeddings across the stages of pp = {plan.pp}"
        yield Problem("layout.pp", plan.pp, rule, "pp: 1")


TORCHTITAN_LIMITS: tuple[StackLimit, ...] = (
    schedule_without_pipeline,
    experts_order,
    next_tokens,
    sharding_with_context,
    expert_tensor_parallel,
    expert_mesh,
    expert_replicas,
    optimizer,
    sequence_pieces,
    tied_embeddings,
)
