"""A uniform plan in the words of ``pretrain_gpt.py`` (megatron-core 0.19.2).

Data parallelism is not an option: it is what world / (tp·pp·cp) leaves. The distributed optimizer shards over
dp·cp / instances neighbouring ranks; with ``--num-distributed-optimizer-instances`` = dp_replicate that is
dp_shard·cp. Gradients and parameters are sharded by Megatron-FSDP, which gathers parameters where a layer
uses them.
"""

from collections.abc import Mapping
from itertools import groupby

from meshwright.frameworks.exporting.expert_capacity import capacity_options
from meshwright.frameworks.exporting.export_result import Refusal
from meshwright.frameworks.exporting.uniform_plan import UniformPlan
from meshwright.frameworks.option_names import Option
from meshwright.plans.rules.context_parallel import stack_name
from meshwright.stack.stack import Stack

CONTEXTS: Mapping[str, str] = {
    "ring": "p2p",
    "all-gather": "all_gather",
    "ulysses": "a2a",
    "ring+ulysses": "a2a+p2p",
}
"""Forms of context parallelism in Megatron's words."""
ORDERS: dict[tuple[str, ...], tuple[Option, ...]] = {
    ("tp", "cp", "dp_shard", "dp_replicate", "pp"): (),
    ("tp", "cp", "pp", "dp_shard", "dp_replicate"): (("--use-tp-pp-dp-mapping",),),
}
PRECISIONS: dict[str, tuple[Option, ...]] = {
    "fp16": (("--fp16",),),
    "bf16": (("--bf16",),),
    "fp8": (("--bf16",), ("--fp8-format", "hybrid"), ("--fp8-recipe", "tensorwise")),
    "mxfp8": (("--bf16",), ("--fp8-format", "e4m3"), ("--fp8-recipe", "mxfp8")),
    "nvfp4": (("--bf16",), ("--fp4-format", "e2m1")),
}
OPTIMIZERS = {"adamw": "adam", "sgd": "sgd"}
STRATEGIES = {"zero2": "optim_grads", "zero3": "optim_grads_params"}


def plan_options(plan: UniformPlan, stack: Stack) -> list[Option]:
    """The options that make the plan. For a plan without ``plan_problems``."""
    work = plan.long.workload
    return [
        *_degrees(plan),
        *_exchange(plan, stack),
        *capacity_options(plan),
        *_states(plan, stack),
        *_pipeline(plan, stack),
        *_recompute(plan),
        ("--micro-batch-size", str(plan.micro_batch)),
        ("--global-batch-size", str(work.global_batch)),
        ("--seq-length", str(work.seq_len)),
        *PRECISIONS[work.precision],
        ("--optimizer", OPTIMIZERS[work.optimizer]),
        ("--attention-backend", "auto" if stack.attention.startswith("flash") else "unfused"),
    ]


def plan_refusals(plan: UniformPlan, stack: Stack) -> list[Refusal]:
    """What Megatron means in its own way without a change to the plan."""
    refusals = exchange_refusals(plan, stack)
    if plan.long.workload.task == "sft":
        why = "the files read pre-training data; set data, tokenizer and --sft for a prompt format"
        refusals.append(Refusal("workload.task", "sft", why))
    return refusals


def _degrees(plan: UniformPlan) -> list[Option]:
    options: list[Option] = [
        ("--tensor-model-parallel-size", str(plan.tp)),
        ("--pipeline-model-parallel-size", str(plan.pp)),
        ("--context-parallel-size", str(plan.cp)),
    ]
    if plan.experts:
        options += [
            ("--expert-model-parallel-size", str(plan.experts.ep)),
            ("--expert-tensor-parallel-size", str(plan.experts.etp)),
        ]
    if plan.sequence_parallel:
        options.append(("--sequence-parallel",))
    if plan.cp > 1:
        options += _context(plan)
    return [*options, *_order(plan)]


def _order(plan: UniformPlan) -> tuple[Option, ...]:
    """The first of Megatron's two orders that is the plan's; where they say the same, the one without an option."""
    return next(
        option for order, option in ORDERS.items() if plan.order == tuple(a for a in order if a in plan.order)
    )


def _exchange(plan: UniformPlan, stack: Stack) -> list[Option]:
    wanted = stack.overlap_expert_exchange and plan.experts is not None
    return [("--overlap-moe-expert-parallel-comm",)] if wanted and not exchange_refusals(plan, stack) else []


def exchange_refusals(plan: UniformPlan, stack: Stack) -> list[Refusal]:
    """Why Megatron does not run the experts' exchange beside compute, where the stack does."""
    if plan.experts is None or not stack.overlap_expert_exchange:
        return []
    conditions = {
        "needs ep > 1": plan.experts.ep == 1,
        "needs virtual stages in a pipeline": plan.pp > 1 and plan.virtual_stages == 1,
        "does not run beside recomputed expert layers": plan.recompute == "full" or "moe" in plan.recompute,
        "takes one layer for further tokens": plan.next_token_layers > 1,
    }
    whys = [why for why, holds in conditions.items() if holds]
    why = f"--overlap-moe-expert-parallel-comm {'; '.join(whys)}: exchanges are written without it"
    return [Refusal("stack.overlap_expert_exchange", "true", why)] if whys else []


def _context(plan: UniformPlan) -> list[Option]:
    """The form; of two dimensions the inner one's degree comes first."""
    options: list[Option] = [("--cp-comm-type", CONTEXTS[stack_name(plan.context)])]
    if plan.context.two_dimensional:
        inner = plan.context.ulysses
        options.append(("--hierarchical-context-parallel-sizes", str(inner), str(plan.cp // inner)))
    return options


def _states(plan: UniformPlan, stack: Stack) -> list[Option]:
    overlap: list[Option] = []
    if plan.dp * plan.cp > 1 and stack.overlap_gradient_reduction:
        overlap.append(("--overlap-grad-reduce",))
    if plan.sharding == "none":
        return overlap
    if overlap and stack.overlap_parameter_gather:
        overlap.append(("--overlap-param-gather",))
    options: list[Option] = [("--use-distributed-optimizer",)]
    if plan.sharding in STRATEGIES:
        options += _fsdp(plan)
    if plan.dp_replicate > 1:
        options.append(("--num-distributed-optimizer-instances", str(plan.dp_replicate)))
    return options + overlap


def _fsdp(plan: UniformPlan) -> list[Option]:
    options: list[Option] = [
        ("--use-megatron-fsdp",),
        ("--data-parallel-sharding-strategy", STRATEGIES[plan.sharding]),
        ("--ckpt-format", "fsdp_dtensor"),
        ("--no-gradient-accumulation-fusion",),
    ]
    if plan.sharding == "zero3":
        options.append(("--init-model-with-meta-device",))
    return options


def _pipeline(plan: UniformPlan, stack: Stack) -> list[Option]:
    options: list[Option] = []
    if not _even(plan):
        options.append(("--pipeline-model-parallel-layout", layout_text(plan)))
    elif plan.virtual_stages > 1:
        options.append(("--num-virtual-stages-per-pipeline-rank", str(plan.virtual_stages)))
    if plan.virtual_stages > 1 and not stack.overlap_p2p:
        options.append(("--no-overlap-p2p-communication",))
    return options


def _even(plan: UniformPlan) -> bool:
    """Equal stages, the embedding in the first, further tokens and the head in the last: what Megatron does unasked."""
    ends = plan.stages[0].embed and plan.stages[-1].head
    further = [plan.next_tokens_of(stage) for stage in plan.stages]
    equal = len({stage.count - own for stage, own in zip(plan.stages, further, strict=True)}) == 1
    return ends and equal and not any(further[:-1])


def layout_text(plan: UniformPlan) -> str:
    """Megatron's text for stages: E embedding, t a layer, m one that predicts a further token, L the loss.

    Stages stand between |, and (t*3|)*6 repeats.
    """
    texts = []
    for stage in plan.stages:
        further = plan.next_tokens_of(stage)
        layers = _times("t", stage.count - further) + _times("m", further)
        texts.append("E" * stage.embed + layers + "L" * stage.head)
    runs = [(text, len(list(run))) for text, run in groupby(texts[:-1])]
    head = "".join(f"({text}|)*{count}" if count > 1 else f"{text}|" for text, count in runs)
    return head + texts[-1]


def _times(letter: str, count: int) -> str:
    return f"{letter}*{count}" if count > 1 else letter * count


def _recompute(plan: UniformPlan) -> list[Option]:
    if plan.recompute in ("none", ()):
        return []
    if plan.recompute == "full":
        return [
            ("--recompute-granularity", "full"),
            ("--recompute-method", "uniform"),
            ("--recompute-num-layers", "1"),
        ]
    modules = ("core_attn",) if isinstance(plan.recompute, str) else plan.recompute
    return [("--recompute-granularity", "selective"), ("--recompute-modules", *modules)]
