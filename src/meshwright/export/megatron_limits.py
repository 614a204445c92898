"""What of a uniform plan megatron-core 0.19.2 cannot say, or would refuse when it starts, each with its rule.

Rules that every stack shares (degrees that divide heads, layers, batch) are ``plan/check.py``'s. Sources:
megatron-core 0.19.2, ``training/arguments.py``, ``core/parallel_state.py``,
``core/pipeline_parallel/schedules.py``, ``core/transformer/moe/moe_layer.py``.
"""

from meshwright.errors import Problem
from meshwright.export.capacity import capacity_problems
from meshwright.export.megatron_next_tokens import next_token_problems
from meshwright.export.megatron_plan import ORDERS, instances, known_order
from meshwright.export.packing import megatron_packing_problems
from meshwright.export.uniform import UniformPlan
from meshwright.model.architecture import Architecture

NEEDS = {
    "moe": "experts",
    "moe_act": "experts",
    "shared_experts": "shared experts",
    "mla_up_proj": "latent attention",
}


def plan_problems(plan: UniformPlan, arch: Architecture) -> list[Problem]:
    """What of a plan Megatron cannot say or would refuse when it starts."""
    return [
        *_order_problems(plan),
        *_state_problems(plan),
        *_pipeline_problems(plan),
        *_recompute_problems(plan, arch),
        *_training_problems(plan, arch),
        *next_token_problems(plan, arch),
        *megatron_packing_problems(plan),
        *capacity_problems(plan),
    ]


def _order_problems(plan: UniformPlan) -> list[Problem]:
    order = known_order(plan)
    if order is None:
        shown = [*plan.order] if not plan.experts else [[*plan.order], [*plan.expert_order]]
        rule = "Megatron has two orders: tp, cp, dp, pp (experts etp, ep, edp, pp) and tp, cp, pp, dp"
        hint = "rank_order: [tp, cp, dp_shard, dp_replicate, pp]"
        return [Problem("layout.rank_order", shown, rule, hint)]
    experts = plan.experts
    inner = plan.tp * plan.cp
    if experts and plan.pp > 1 and ORDERS[order] and experts.ep * experts.etp != inner:
        rule = f"with pp before dp, ep·etp = {experts.ep}·{experts.etp} must equal tp·cp = {inner}"
        return [Problem("layout.rank_order", [*plan.order], rule, "pp last in rank_order")]
    return []


def _state_problems(plan: UniformPlan) -> list[Problem]:
    if plan.sharding == "none":
        return []
    whole = plan.shard_axes | {"dp_replicate"} if plan.dp_replicate > 1 else plan.shard_axes
    states = {"zero1": ("optimizer",), "zero2": ("gradient", "optimizer")}
    used = states.get(plan.sharding, ("parameter", "gradient", "optimizer"))
    problems = []
    for state in used:
        axes = plan.sharded_axes(state)
        outer = state == "optimizer" and plan.sharding == "zero3" and axes == whole
        if (axes != plan.sharded_axes(used[0]) and not outer) or axes not in (plan.shard_axes, whole):
            rule = f"Megatron shards over {_spoken(plan.shard_axes)}, or over all of {_spoken(whole)}"
            problems.append(Problem(f"states.{state}", sorted(axes), rule, f"[{_spoken(plan.shard_axes)}]"))
    if plan.sharding == "zero3" and plan.gather != "per-layer":
        rule = "Megatron-FSDP gathers parameters at each layer's use"
        problems.append(Problem("gather", plan.gather, rule, "gather: per-layer"))
    return problems + _expert_state_problems(plan)


def _expert_state_problems(plan: UniformPlan) -> list[Problem]:
    copies = instances(plan)
    outer = "dp_replicate" in plan.sharded_axes("optimizer")
    if plan.experts is None or outer or plan.experts.edp_replicate == copies:
        return []
    rule = (
        f"Megatron keeps one copy of the experts' states in each of {copies} instances: "
        f"edp_replicate = {plan.experts.edp_replicate} must be {copies}"
    )
    return [
        Problem(
            f"layouts.{plan.layout_name}.experts.edp_replicate",
            plan.experts.edp_replicate,
            rule,
            "ep within dp_shard·cp·tp",
        )
    ]


def _spoken(axes: frozenset[str]) -> str:
    return ", ".join(sorted(axes, reverse=True))


def _pipeline_problems(plan: UniformPlan) -> list[Problem]:
    known = ("1f1b", "interleaved-1f1b") if plan.virtual_stages == 1 else ("interleaved-1f1b",)
    problems = []
    if plan.schedule not in known:
        rule = f"Megatron runs 1f1b, and interleaved-1f1b where virtual_stages = {plan.virtual_stages} > 1"
        problems.append(Problem("pipeline.schedule", plan.schedule, rule, f"schedule: {known[0]}"))
    if not plan.looped:
        placement = list(plan.long.pipeline.placement)
        rule = f"Megatron puts stage i on pipeline rank i mod {plan.pp}"
        problems.append(Problem("pipeline.placement", placement, rule, "leave the placement out"))
    if plan.virtual_stages > 1 and plan.pp == 1:
        rule = "virtual stages need pp > 1"
        problems.append(Problem("pipeline.virtual_stages", plan.virtual_stages, rule, "virtual_stages: 1"))
    elif plan.virtual_stages > 1 and plan.micro_batches % plan.pp:
        rest = plan.micro_batches % plan.pp
        rule = f"interleaved: micro-batches {plan.micro_batches} mod pp {plan.pp} = {rest}, must be 0"
        hint = f"a global batch of whole multiples of {plan.pp * plan.dp * plan.micro_batch}"
        problems.append(Problem("workload.global_batch", plan.long.workload.global_batch, rule, hint))
    return problems


def _recompute_problems(plan: UniformPlan, arch: Architecture) -> list[Problem]:
    has = {
        "experts": arch.moe is not None,
        "shared experts": arch.moe is not None and arch.moe.shared_intermediate > 0,
        "latent attention": arch.latent is not None,
    }
    chosen = plan.recompute if isinstance(plan.recompute, tuple) else ()
    return [
        Problem("recompute", name, f"the model has no {NEEDS[name]}", f"leave {name} out")
        for name in chosen
        if name in NEEDS and not has[NEEDS[name]]
    ]


def _training_problems(plan: UniformPlan, arch: Architecture) -> list[Problem]:
    work, problems = plan.long.workload, []
    if plan.cp > 1 and work.seq_len % (2 * plan.cp):
        rule = (
            f"seq_len mod 2·cp = {work.seq_len} mod {2 * plan.cp} = {work.seq_len % (2 * plan.cp)}, must be 0"
        )
        problems.append(Problem("workload.seq_len", work.seq_len, rule, f"a multiple of {2 * plan.cp}"))
    if arch.positions == "learned" and work.seq_len > arch.max_positions:
        rule = f"seq_len = {work.seq_len} > {arch.max_positions} learned positions"
        problems.append(Problem("workload.seq_len", work.seq_len, rule, f"at most {arch.max_positions}"))
    if arch.moe and plan.tp > 1 and not plan.sequence_parallel:
        rule = f"experts with tp = {plan.tp} > 1 need sequence parallelism"
        problems.append(Problem("layout.sequence_parallel", False, rule, "sequence_parallel: true"))
    if plan.experts and plan.experts.etp > 1 and arch.moe and arch.moe.expert_bias:
        rule = f"experts with biases are not cut: etp = {plan.experts.etp} must be 1"
        problems.append(Problem("layout.etp", plan.experts.etp, rule, "etp: 1"))
    return problems
