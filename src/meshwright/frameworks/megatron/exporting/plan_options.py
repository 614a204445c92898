"""Megatron's values that several facts of a plan decide; Megatron-Bridge has the same under other names."""

from collections.abc import Mapping
from itertools import groupby

from meshwright.frameworks.exporting.export_result import Refusal
from meshwright.frameworks.importing.imported_file import NEXT_LAYERS, Stage
from meshwright.frameworks.option_table import Facts
from meshwright.plans.rules.context_parallel import stack_name

CONTEXTS: Mapping[str, str] = {
    "ring": "p2p",
    "all-gather": "all_gather",
    "ulysses": "a2a",
    "ring+ulysses": "a2a+p2p",
}
"""Forms of context parallelism in Megatron's words."""
USUAL_ORDER = ("tp", "cp", "dp_shard", "dp_replicate", "pp")
PP_BEFORE_DP_ORDER = ("tp", "cp", "pp", "dp_shard", "dp_replicate")
FP8_FORMATS = {"fp8": ("hybrid", "tensorwise"), "mxfp8": ("e4m3", "mxfp8")}
"""Format and recipe of the precisions in 8 bit."""
OPTIMIZERS = {"adamw": "adam", "sgd": "sgd"}
STRATEGIES = {"zero2": "optim_grads", "zero3": "optim_grads_params"}


def plan_refusals(facts: Facts) -> list[Refusal]:
    """What Megatron means in its own way without a change to the plan."""
    refusals = exchange_refusals(facts)
    if facts["workload.task"] == "sft":
        why = "the files read pre-training data; set data, tokenizer and --sft for a prompt format"
        refusals.append(Refusal("workload.task", "sft", why))
    return refusals


def exchange_refusals(facts: Facts) -> list[Refusal]:
    """Why Megatron does not run the experts' exchange beside compute, where the stack does."""
    if "layout.ep" not in facts or not facts["stack.overlap_expert_exchange"]:
        return []
    pp, recompute = facts["layout.pp"], facts["recompute"]
    conditions = {
        "needs ep > 1": facts["layout.ep"] == 1,
        "needs virtual stages in a pipeline": pp > 1 and facts["pipeline.virtual_stages"] == 1,
        "does not run beside recomputed expert layers": recompute == "full" or "moe" in recompute,
        "takes one layer for further tokens": facts.get(NEXT_LAYERS, 0) > 1,
    }
    whys = [why for why, holds in conditions.items() if holds]
    why = f"--overlap-moe-expert-parallel-comm {'; '.join(whys)}: exchanges are written without it"
    return [Refusal("stack.overlap_expert_exchange", "true", why)] if whys else []


def overlaps_exchange(facts: Facts) -> bool:
    """Return whether the experts' exchange may run beside compute."""
    return "layout.ep" in facts and not exchange_refusals(facts)


def context_kind(facts: Facts) -> str | None:
    """Return the form of context parallelism."""
    return CONTEXTS[stack_name(facts["layout.context"])] if facts["layout.cp"] > 1 else None


def context_sizes(facts: Facts) -> tuple[int, int] | None:
    """Return the degrees of a form in two dimensions, the inner one first."""
    context, cp = facts["layout.context"], facts["layout.cp"]
    return (context.ulysses, cp // context.ulysses) if cp > 1 and context.two_dimensional else None


def pp_before_dp(facts: Facts) -> bool:
    """Return whether the plan has the second of Megatron's two orders, and not the first."""
    order = facts["layout.rank_order"]
    return order != tuple(axis for axis in USUAL_ORDER if axis in order)


def capacity_factor(facts: Facts) -> float | None:
    """Return the capacity of an expert; None where experts take all tokens."""
    return facts["workload.capacity"].factor if "workload.capacity" in facts else None


def capacity_policy(facts: Facts) -> str | None:
    """Return which tokens are dropped."""
    return facts["workload.capacity"].drop if "workload.capacity" in facts else None


def capacity_pads(facts: Facts) -> bool:
    """Return whether experts are filled up to their capacity."""
    return "workload.capacity" in facts and facts["workload.capacity"].pad


def is_sharded(facts: Facts) -> bool:
    """Return whether states are sharded."""
    return bool(facts["sharding"] != "none")


def is_fsdp(facts: Facts) -> bool:
    """Return whether Megatron-FSDP shards more than the optimizer's states."""
    return facts["sharding"] in STRATEGIES


def strategy(facts: Facts) -> str | None:
    """Return what Megatron-FSDP shards."""
    return STRATEGIES.get(facts["sharding"])


def starts_on_meta(facts: Facts) -> bool:
    """Return whether no rank can hold all parameters."""
    return bool(facts["sharding"] == "zero3")


def has_instances(facts: Facts) -> bool:
    """Return whether there are several copies of the sharded states."""
    return is_sharded(facts) and facts["layout.dp_replicate"] > 1


def reduces_gradients(facts: Facts) -> bool:
    """Return whether gradients of several ranks are added."""
    return bool(facts["dp"] * facts["layout.cp"] > 1)


def gathers_parameters(facts: Facts) -> bool:
    """Return whether the gather of parameters may be overlapped: only with that of gradients."""
    return is_sharded(facts) and reduces_gradients(facts) and facts["stack.overlap_gradient_reduction"]


def has_even_chunks(facts: Facts) -> bool:
    """Return whether the number of virtual stages says what every stage holds."""
    return facts["pipeline.virtual_stages"] > 1 and layout_text(facts) is None


def sends_in_turn(facts: Facts) -> bool:
    """Return whether messages of virtual stages are sent between passes."""
    return facts["pipeline.virtual_stages"] > 1 and not facts["stack.overlap_p2p"]


def layout_text(facts: Facts) -> str | None:
    """Megatron's text for stages: E embedding, t a layer, m one that predicts a further token, L the loss.

    Stages stand between |, and (t*3|)*6 repeats. None for what Megatron does unasked: equal stages, the embedding in
    the first, further tokens and the head in the last.
    """
    stages: tuple[Stage, ...] = facts["stages"]
    ends = stages[0].embed and stages[-1].head
    if ends and len({s.layers for s in stages}) == 1 and not any(s.further for s in stages[:-1]):
        return None
    texts = ["E" * s.embed + _times("t", s.layers) + _times("m", s.further) + "L" * s.head for s in stages]
    runs = [(text, len(list(run))) for text, run in groupby(texts[:-1])]
    head = "".join(f"({text}|)*{count}" if count > 1 else f"{text}|" for text, count in runs)
    return head + texts[-1]


def _times(letter: str, count: int) -> str:
    return f"{letter}*{count}" if count > 1 else letter * count


def recompute_granularity(facts: Facts) -> str | None:
    """Return whether whole layers or operators of them are recomputed."""
    if facts["recompute"] in ("none", ()):
        return None
    return "full" if facts["recompute"] == "full" else "selective"


def recompute_method(facts: Facts) -> str | None:
    """Return how recomputed layers are chosen: all alike."""
    return "uniform" if facts["recompute"] == "full" else None


def recompute_layers(facts: Facts) -> int | None:
    """Return the layers for which one input is kept."""
    return 1 if facts["recompute"] == "full" else None


def recompute_modules(facts: Facts) -> tuple[str, ...] | None:
    """Return the operators that are recomputed."""
    if recompute_granularity(facts) != "selective":
        return None
    return ("core_attn",) if facts["recompute"] == "selective" else tuple(facts["recompute"])


def fp8_format(facts: Facts) -> str | None:
    """Return the format of numbers in 8 bit."""
    return FP8_FORMATS.get(facts["workload.precision"], (None, None))[0]


def fp8_recipe(facts: Facts) -> str | None:
    """Return how numbers in 8 bit are scaled."""
    return FP8_FORMATS.get(facts["workload.precision"], (None, None))[1]


def fp4_format(facts: Facts) -> str | None:
    """Return the format of numbers in 4 bit."""
    return "e2m1" if facts["workload.precision"] == "nvfp4" else None


def attention_backend(facts: Facts) -> str:
    """Return the choice of attention kernels."""
    return "auto" if facts["stack.attention"].startswith("flash") else "unfused"
