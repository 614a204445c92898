"""Values of Megatron options that depend on several fields of a plan; Megatron-Bridge uses the same values.

The table of all options, with the names of these values: ``options.py`` of the framework.
"""

from collections.abc import Mapping
from itertools import groupby
from typing import Any

from meshwright.frameworks.exporting.export_result import Refusal
from meshwright.frameworks.importing.imported_file import NEXT_LAYERS, RECOMPUTED_FIRST, Stage
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
FP8_FORMATS = {"fp8": "hybrid", "mxfp8": "e4m3"}
"""Formats of the precisions in 8 bit."""
FP8_RECIPES = {"current": "tensorwise", "delayed": "delayed", "blockwise": "blockwise"}
"""Recipes of fp8 in Megatron's words; mxfp8 is one more there."""
DEFAULT_FP8_RECIPE = "delayed"
STRATEGIES = {"zero2": "optim_grads", "zero3": "optim_grads_params"}


def plan_refusals(facts: Facts) -> list[Refusal]:
    """Return the plan keys that Megatron runs differently although the plan stays the same."""
    refusals = exchange_refusals(facts)
    if facts["workload.task"] == "sft":
        why = "the files read pre-training data; set data, tokenizer and --sft for a prompt format"
        refusals.append(Refusal("workload.task", "sft", why))
    return refusals


def exchange_refusals(facts: Facts) -> list[Refusal]:
    """Return the reasons why Megatron does not overlap the experts' exchange, where the stack does."""
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


def accumulates_fp16_in_fp32(facts: Facts) -> bool:
    """Return whether gradients are summed up in fp32 although the precision is fp16: bf16's are unless asked."""
    return bool(facts["workload.precision"] == "fp16" and facts["dtypes.gradient"] == "fp32")


def part_on_host(facts: Facts) -> float | None:
    """Return the share of the optimizer on the host, where it is not all of it."""
    share: float = facts["offload.optimizer"]
    return share if 0 < share < 1 else None


def narrow_gradients(facts: Facts) -> str | None:
    """Return the type of the gradients that an optimizer of narrow states reads; None for the usual one."""
    return "bf16" if facts["dtypes.narrow"] and facts["dtypes.gradient"] == "bf16" else None


def narrow_state(path: str, facts: Facts) -> str | None:
    """Return the type of one of the optimizer's states; None for the usual one."""
    return facts[path] if facts["dtypes.narrow"] and facts[path] != "fp32" else None


def overlaps_exchange(facts: Facts) -> bool:
    """Return whether the experts' exchange may overlap with compute."""
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


def capacity(facts: Facts, name: str) -> Any:
    """Return one value of the capacity of experts; None where they take all tokens."""
    return getattr(facts.get("workload.capacity"), name, None)


def is_sharded(facts: Facts) -> bool:
    """Return whether states are sharded, or one rank's are on the host as those of a sharded optimizer."""
    return bool(facts["sharding"] != "none" or facts["offload.optimizer"] > 0)


def is_fsdp(facts: Facts) -> bool:
    """Return whether Megatron-FSDP shards more than the optimizer's states."""
    return facts["sharding"] in STRATEGIES


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


def recompute(facts: Facts, name: str) -> Any:
    """Return one value of recomputation: of whole layers, one by one, or of operators; None where it is off.

    Method ``uniform`` recomputes all layers, ``block`` the first ones of each stage.
    """
    chosen = facts["recompute"]
    if chosen in ("none", ()):
        return None
    first = facts.get(RECOMPUTED_FIRST)
    whole = {"granularity": "full", "method": "block" if first else "uniform", "layers": first or 1}
    modules = ("core_attn",) if chosen == "selective" else tuple(chosen)
    return (whole if chosen == "full" else {"granularity": "selective", "modules": modules}).get(name)


def low_precision(facts: Facts) -> dict[str, str | None]:
    """Return the formats of numbers in 8 and 4 bit, and the recipe of the former; None where there are none."""
    precision, recipe = facts["workload.precision"], facts["workload.fp8_recipe"]
    named = precision if precision == "mxfp8" else FP8_RECIPES.get(recipe)
    return {
        "fp8": FP8_FORMATS.get(precision),
        "fp8_recipe": named,
        "fp4": "e2m1" if precision == "nvfp4" else None,
    }
