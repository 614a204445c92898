"""What targets do with a capacity of experts: Megatron drops tokens, rank by rank; the others give experts all of them.

Sources: megatron-core 0.19.2, ``core/transformer/transformer_config.py`` and ``core/transformer/moe/moe_utils.py``
(``apply_router_token_dropping``); torchtitan 0.3.0, ``models/common/moe.py``; transformers 5.23.0's models of experts.
"""

from meshwright.errors import Problem
from meshwright.export.option_list import Option
from meshwright.export.uniform import UniformPlan
from meshwright.plan.supported import workload_of

FIELD = "workload.capacity"
FACTOR, POLICY, PAD = (
    "--moe-expert-capacity-factor",
    "--moe-token-drop-policy",
    "--moe-pad-expert-input-to-capacity",
)


def capacity_options(plan: UniformPlan) -> list[Option]:
    """Megatron's options."""
    capacity = workload_of(plan.long).capacity
    if capacity is None:
        return []
    padded: list[Option] = [(PAD,)] if capacity.pad else []
    return [(FACTOR, f"{capacity.factor!r}"), (POLICY, capacity.drop), *padded]


def capacity_problems(plan: UniformPlan) -> list[Problem]:
    """Megatron counts the tokens of a rank, which must be those of the plan's scope."""
    work = workload_of(plan.long)
    capacity, whole = work.capacity, work.seq_len * plan.micro_batch
    own = whole // (plan.cp * (plan.tp if plan.sequence_parallel else 1))
    if capacity is None or capacity.scope_tokens(own, work.seq_len, plan.micro_batch) == own:
        return []
    rule = f"Megatron counts the {own} tokens that a rank has of a micro-batch, and no other scope"
    return [Problem(f"{FIELD}.scope", capacity.scope, rule, "scope: rank")]


def dropless_problems(plan: UniformPlan, target: str) -> list[Problem]:
    """A target whose experts take all tokens."""
    capacity = workload_of(plan.long).capacity
    if capacity is None:
        return []
    return [
        Problem(FIELD, str(capacity), f"{target} gives experts all tokens that chose them", "leave it out")
    ]
