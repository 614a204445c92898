"""What targets do with a capacity of experts: Megatron drops tokens, rank by rank; the others give experts all of them.

Sources: megatron-core 0.19.2, ``core/transformer/transformer_config.py`` and ``core/transformer/moe/moe_utils.py``
(``apply_router_token_dropping``); torchtitan 0.3.0, ``models/common/moe.py``; transformers 5.23.0's models of experts.
"""

from meshwright.frameworks.exporting.uniform_plan import UniformPlan
from meshwright.frameworks.option_names import Option
from meshwright.plans.rules.not_in_this_release import workload_of

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
