"""What of a uniform plan DeepSpeed 0.19.8 cannot say of a Hugging Face model, or would refuse, each with its rule.

* pp: stages are arguments of ``PipelineModule`` in code (``runtime/pipe/module.py``); no key makes them.
* cp: long sequences go through Ulysses, which deals out heads inside attention; a plan's cp passes keys and values.
* dp_replicate: ZeRO shards over all of data parallelism. MiCS, which sharded over a part of it, is gone
  (``runtime/config.py`` refuses ``mics_shard_size``), and hpZ (``zero_hpz_partition_size``) is none: it keeps a second
  copy of parameters inside a group, states and forward gathers still span all ranks.
* tp: AutoTP takes the model's ``tp_plan`` and refuses one with styles that it does not know (``tp_plan_converter.py``).
* ep: AutoEP's presets (``module_inject/auto_ep_presets``); with AutoTP it wants ep > 1, and etp = 1 always
  (``auto_ep_folding.py``).
"""

from meshwright.errors import Problem
from meshwright.export.deepspeed_plan import EXPERT_PRESETS, TENSOR_PRESETS
from meshwright.export.hugging_face_limits import SHARDED_STATES, script_problems
from meshwright.export.packing import linear_packing_problems
from meshwright.export.uniform import UniformPlan
from meshwright.model.architecture import Architecture

PRECISIONS = ("fp32", "fp16", "bf16")
TENSOR_FAMILIES = (
    *("gemma2", "gemma3_text", "granite", "llama", "ministral3", "mistral", "qwen2", "qwen3", "smollm3"),
    *("starcoder2", *TENSOR_PRESETS),
)
"""Families of which AutoTP cuts attention and feed-forward as a plan's tp does."""


def plan_problems(plan: UniformPlan, arch: Architecture) -> list[Problem]:
    """Everything about ``plan`` that DeepSpeed has no word for."""
    return [
        *script_problems(plan, "DeepSpeed", PRECISIONS),
        *_sequence_problems(plan),
        *_state_problems(plan),
        *_tensor_problems(plan, arch),
        *_expert_problems(plan, arch),
        *linear_packing_problems(plan, arch),
    ]


def _sequence_problems(plan: UniformPlan) -> list[Problem]:
    if plan.cp == 1:
        return []
    rule = "DeepSpeed splits sequences by Ulysses, which exchanges heads and not keys and values"
    return [Problem("layout.cp", plan.cp, rule, "cp: 1")]


def _state_problems(plan: UniformPlan) -> list[Problem]:
    """All sharded states lie over all of data parallelism; parameters are gathered where a layer uses them."""
    axes = ("dp_shard", "dp_replicate")
    whole = frozenset(axis for axis in axes if getattr(plan, axis) > 1)
    shown = f"[{', '.join(sorted(whole))}]"
    problems = []
    for state in SHARDED_STATES[plan.sharding]:
        sharded = plan.sharded_axes(state) - {"cp"}
        if plan.dp_replicate > 1 and sharded == whole - {"dp_replicate"}:
            rule = f"ZeRO shards over all {plan.dp} ranks of data parallelism: MiCS is no part of 0.19.8"
            hint = f"dp_replicate: 1, dp_shard: {plan.dp}"
            return [Problem("layout.dp_replicate", plan.dp_replicate, rule, hint)]
        if sharded != whole:
            rule = f"ZeRO shards over all of {shown} and nothing else"
            problems.append(Problem(f"states.{state}", sorted(sharded), rule, shown))
    if plan.sharding == "zero3" and plan.gather != "per-layer":
        rule = "ZeRO-3 gathers parameters at each layer's use"
        problems.append(Problem("gather", plan.gather, rule, "gather: per-layer"))
    return problems


def _tensor_problems(plan: UniformPlan, arch: Architecture) -> list[Problem]:
    if plan.tp == 1:
        return []
    if arch.family not in TENSOR_FAMILIES:
        rule = f"AutoTP does not cut {arch.family} as a plan does: its tp_plan is absent, partial or refused"
        return [Problem("layout.tp", plan.tp, rule, "tp: 1")]
    if plan.experts and plan.experts.ep == 1:
        rule = f"experts with tp = {plan.tp} > 1 need AutoEP with ep > 1"
        return [Problem("layout.ep", 1, rule, "ep: 2, or tp: 1")]
    return []


def _expert_problems(plan: UniformPlan, arch: Architecture) -> list[Problem]:
    experts, problems = plan.experts, []
    if experts is None:
        return []
    if experts.ep > 1 and arch.family not in EXPERT_PRESETS:
        rule = f"AutoEP has no preset for {arch.family}, only for {', '.join(EXPERT_PRESETS)}"
        problems.append(Problem("layout.ep", experts.ep, rule, "ep: 1"))
    if experts.etp > 1:
        rule = f"AutoEP does not cut experts: etp = {experts.etp} must be 1"
        problems.append(Problem("layout.etp", experts.etp, rule, "etp: 1"))
    return problems
