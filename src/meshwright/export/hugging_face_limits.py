"""What of a uniform plan no training script on Hugging Face's model classes can be told, whoever runs it.

Sources: transformers 5.23.0, ``modeling_utils.py`` (checkpoints are whole decoder layers) and the ``tp_plan`` of its
configurations (linear layers are cut, norms see whole sequences); rank orders of DeepSpeed 0.19.8
(``utils/groups.py``) and Accelerate 1.15.0 (``parallelism_config.py``), which are the same.
"""

from collections.abc import Collection, Mapping

from meshwright.errors import Problem
from meshwright.export.capacity import dropless_problems
from meshwright.export.uniform import UniformPlan
from meshwright.plan.short import ShardingName

ORDER = ("tp", "cp", "dp_shard", "dp_replicate")
EXPERT_ORDER = ("etp", "ep", "edp_shard", "edp_replicate")
SHARDED_STATES: Mapping[ShardingName, tuple[str, ...]] = {
    "none": (),
    "zero1": ("optimizer",),
    "zero2": ("gradient", "optimizer"),
    "zero3": ("parameter", "gradient", "optimizer"),
}


def script_problems(plan: UniformPlan, target: str, precisions: Collection[str]) -> list[Problem]:
    """Everything that neither DeepSpeed nor Accelerate can say; ``precisions``: those that ``target`` knows."""
    return [
        *_order_problems(plan, target),
        *_schedule_problems(plan, target),
        *_layer_problems(plan),
        *_precision_problems(plan, target, precisions),
        *dropless_problems(plan, target),
    ]


def _order_problems(plan: UniformPlan, target: str) -> list[Problem]:
    dense = tuple(axis for axis in ORDER if axis in plan.order)
    experts = tuple(axis for axis in EXPERT_ORDER if axis in plan.expert_order)
    if plan.pp > 1 or (plan.order == dense and plan.expert_order == experts):
        return []
    shown = [*plan.order] if not plan.experts else [[*plan.order], [*plan.expert_order]]
    rule = f"{target} has one order: tp, cp, dp_shard, dp_replicate (experts ep, edp)"
    return [Problem("layout.rank_order", shown, rule, "rank_order: [tp, cp, dp_shard, dp_replicate, pp]")]


def _schedule_problems(plan: UniformPlan, target: str) -> list[Problem]:
    if plan.pp > 1:
        rule = f"no configuration of {target} cuts a Hugging Face model into stages"
        return [Problem("layout.pp", plan.pp, rule, "pp: 1")]
    if plan.schedule == "1f1b" and plan.virtual_stages == 1:
        return []
    rule = f"without a pipeline {target} runs one micro-batch after the other"
    return [Problem("pipeline.schedule", plan.schedule, rule, "schedule: 1f1b")]


def _layer_problems(plan: UniformPlan) -> list[Problem]:
    problems = []
    if plan.recompute not in ("none", "full"):
        shown = plan.recompute if isinstance(plan.recompute, str) else list(plan.recompute)
        rule = "transformers recomputes whole decoder layers or nothing"
        problems.append(Problem("recompute", shown, rule, "recompute: full"))
    if plan.sequence_parallel:
        rule = "transformers' tensor parallelism leaves sequences whole between its cuts"
        problems.append(Problem("layout.sequence_parallel", True, rule, "sequence_parallel: false"))
    return problems


def _precision_problems(plan: UniformPlan, target: str, precisions: Collection[str]) -> list[Problem]:
    precision = plan.long.workload.precision
    if precision in precisions:
        return []
    rule = f"{target} knows {', '.join(precisions)}"
    return [Problem("workload.precision", precision, rule, "precision: bf16")]
