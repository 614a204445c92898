"""What of a uniform plan torchtitan 0.3.0 cannot say, or would refuse when it starts, each with its rule.

Sources: torchtitan 0.3.0, ``distributed/parallel_dims.py``, ``distributed/pipeline_parallel.py``,
``distributed/full_dtensor.py``, ``models/common/moe_sharding.py``, ``trainer.py``.
"""

from meshwright.errors import Problem
from meshwright.export.capacity import dropless_problems
from meshwright.export.torchtitan_models import ShippedModel
from meshwright.export.torchtitan_plan import LOOPED_SCHEDULES, MULTI_STAGE, V_SCHEDULES
from meshwright.export.uniform import UniformPlan

ORDER = ("tp", "cp", "dp_shard", "dp_replicate", "pp")
EXPERT_ORDER = ("etp", "ep", "edp_shard", "edp_replicate", "pp")


def plan_problems(plan: UniformPlan, model: ShippedModel | None) -> list[Problem]:
    """Everything about ``plan`` that torchtitan has no word for; ``model`` None: already refused."""
    return [
        *_order_problems(plan),
        *_state_problems(plan),
        *_expert_problems(plan),
        *_pipeline_problems(plan),
        *_training_problems(plan, model),
        *dropless_problems(plan, "torchtitan"),
    ]


def _order_problems(plan: UniformPlan) -> list[Problem]:
    dense = tuple(axis for axis in ORDER if axis in plan.order)
    experts = tuple(axis for axis in EXPERT_ORDER if axis in plan.expert_order)
    if plan.order == dense and plan.expert_order == experts:
        return []
    shown = [*plan.order] if not plan.experts else [[*plan.order], [*plan.expert_order]]
    rule = (
        "torchtitan has one order: tp, cp, dp_shard, dp_replicate, pp (experts ep, efsdp, dp_replicate, pp)"
    )
    return [Problem("layout.rank_order", shown, rule, "rank_order: [tp, cp, dp_shard, dp_replicate, pp]")]


def _state_problems(plan: UniformPlan) -> list[Problem]:
    if plan.sharding == "zero1":
        rule = "torchtitan does not shard the optimizer alone"
        return [Problem("sharding", plan.sharding, rule, "sharding: zero3")]
    if plan.sharding == "none":
        rule = f"torchtitan shards states over cp = {plan.cp} > 1"
        return [Problem("sharding", "none", rule, "sharding: zero3")] if plan.cp > 1 else []
    problems, whole = [], sorted(plan.shard_axes)
    states = ("gradient", "optimizer") if plan.sharding == "zero2" else ("parameter", "gradient", "optimizer")
    for state in states:
        axes = sorted(plan.sharded_axes(state))
        if axes != whole:
            rule = f"torchtitan shards over all of {', '.join(whole)} and nothing else"
            problems.append(Problem(f"states.{state}", axes, rule, f"[{', '.join(whole)}]"))
    return problems + _gather_problems(plan)


def _gather_problems(plan: UniformPlan) -> list[Problem]:
    """always = per layer; never = per step under a pipeline, per micro-batch without one."""
    if plan.sharding == "zero2" or plan.gather == "per-layer":
        return []
    sayable = "per-step" if plan.pp > 1 else "per-micro-batch"
    if plan.gather == sayable or (plan.pp == 1 and plan.micro_batches == 1):
        return []
    rule = f"with pp = {plan.pp} torchtitan gathers per layer or {sayable.replace('-', ' ')}"
    return [Problem("gather", plan.gather, rule, f"gather: {sayable}")]


def _expert_problems(plan: UniformPlan) -> list[Problem]:
    experts = plan.experts
    if experts is None:
        return []
    problems, inner = [], plan.dp_shard * plan.cp * plan.tp
    etp = plan.tp if experts.ep == 1 else 1
    if experts.etp != etp:
        rule = f"with ep = {experts.ep} torchtitan cuts experts over etp = {etp}"
        problems.append(Problem("layout.etp", experts.etp, rule, f"etp: {etp}"))
    if inner % experts.ep:
        rule = f"ep = {experts.ep} must divide dp_shard·cp·tp = {plan.dp_shard}·{plan.cp}·{plan.tp} = {inner}"
        problems.append(Problem("layout.ep", experts.ep, rule, f"a divisor of {inner}"))
    elif plan.sharding == "none" and experts.ep > 1 and inner != experts.ep:
        efsdp = f"{inner} / {experts.ep} = {inner // experts.ep}"
        rule = f"efsdp = dp_shard·cp·tp / ep = {efsdp}: torchtitan shards the experts"
        problems.append(Problem("sharding", "none", rule, "sharding: zero3"))
    elif plan.sharding != "none" and experts.edp_replicate != plan.dp_replicate:
        rule = f"edp_replicate = {experts.edp_replicate} must be dp_replicate = {plan.dp_replicate}"
        problems.append(
            Problem(
                f"layouts.{plan.layout_name}.experts.edp_replicate",
                experts.edp_replicate,
                rule,
                "ep inside dp_shard",
            )
        )
    return problems


def _pipeline_problems(plan: UniformPlan) -> list[Problem]:
    name, per_rank = plan.schedule, plan.virtual_stages
    if plan.pp == 1:
        wrong = name != "1f1b" or per_rank > 1
        rule = "without a pipeline torchtitan runs one micro-batch after the other"
        return [Problem("pipeline.schedule", name, rule, "schedule: 1f1b")] if wrong else []
    if name not in LOOPED_SCHEDULES | V_SCHEDULES:
        known = ", ".join(LOOPED_SCHEDULES | V_SCHEDULES)
        rule = "torchtitan has no schedule of this name"
        return [Problem("pipeline.schedule", name, rule, f"one of {known}")]
    problems = []
    if name in LOOPED_SCHEDULES and name not in MULTI_STAGE and per_rank > 1:
        rule = f"{name} has one stage per rank, not {per_rank}"
        problems.append(Problem("pipeline.virtual_stages", per_rank, rule, "schedule: interleaved-1f1b"))
    if name == "interleaved-1f1b" and per_rank > 1 and plan.micro_batches % plan.pp:
        rest = plan.micro_batches % plan.pp
        rule = f"interleaved: micro-batches {plan.micro_batches} mod pp {plan.pp} = {rest}, must be 0"
        hint = f"a global batch of whole multiples of {plan.pp * plan.dp * plan.micro_batch}"
        problems.append(Problem("workload.global_batch", plan.long.workload.global_batch, rule, hint))
    return problems + _placement_problems(plan)


def _placement_problems(plan: UniformPlan) -> list[Problem]:
    placement, ranks = plan.long.pipeline.placement, tuple(range(plan.pp))
    wanted = (*ranks, *reversed(ranks)) if plan.schedule in V_SCHEDULES else ranks * plan.virtual_stages
    if placement == wanted:
        return []
    rule = f"torchtitan places the stages of {plan.schedule} as {_shown(wanted)}"
    return [Problem("pipeline.placement", _shown(placement), rule, f"placement: {_shown(wanted)}")]


def _shown(placement: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, placement))}]"


def _training_problems(plan: UniformPlan, model: ShippedModel | None) -> list[Problem]:
    work, problems = plan.long.workload, []
    if isinstance(plan.recompute, tuple):
        rule = "torchtitan recomputes none, selective or full, not a list of operators"
        problems.append(Problem("recompute", list(plan.recompute), rule, "recompute: selective"))
    if work.optimizer != "adamw":
        rule = "torchtitan's configurations set AdamW in Python"
        problems.append(Problem("workload.optimizer", work.optimizer, rule, "optimizer: adamw"))
    if model is not None and plan.cp > 1 and not model.context_parallel:
        rule = f"{model.config} uses variable-length attention, which has no context parallelism"
        problems.append(Problem("layout.cp", plan.cp, rule, "cp: 1"))
    cut = (plan.tp if plan.sequence_parallel else 1) * (2 * plan.cp if plan.cp > 1 else 1)
    if work.seq_len % cut:
        rule = f"seq_len mod tp·2·cp = {work.seq_len} mod {cut} = {work.seq_len % cut}, must be 0"
        problems.append(Problem("workload.seq_len", work.seq_len, rule, f"a multiple of {cut}"))
    return problems
