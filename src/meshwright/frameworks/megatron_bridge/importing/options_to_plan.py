"""Fields of a Megatron-Bridge configuration that a plan has a word for.

A field that neither the file nor its recipe sets is no fact. Bridge counts virtual stages per pipeline rank; it cuts
experts over one rank where ep > 1 and nobody says otherwise (``models/transformer_config.py``), else as many as tp.
The precision is a name of ``training/mixed_precision.py`` or its fields.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from meshwright.errors import nearest
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import (
    NEXT_LAYERS,
    RECOMPUTED_FIRST,
    Fact,
    OutsideFacts,
    completed,
)
from meshwright.frameworks.megatron.exporting.optimizer_options import MOMENTUM, optimizer_facts
from meshwright.frameworks.megatron.exporting.plan_to_options import PP_BEFORE_DP_ORDER
from meshwright.frameworks.megatron.importing.expert_capacity import capacity_facts
from meshwright.frameworks.megatron.importing.multi_token_prediction import USUAL_WEIGHT, weight_fact
from meshwright.frameworks.megatron.importing.options_to_plan import (
    CONTEXT_OF,
    FP8_RECIPE_OF,
    RECOMPUTES,
    SHARDINGS,
    context_in_megatron_words,
)
from meshwright.frameworks.megatron_bridge import options as names
from meshwright.frameworks.megatron_bridge.exporting.plan_to_options import PLAIN_PRECISION, TORCH_NAMES
from meshwright.frameworks.megatron_bridge.importing.pipeline_stages import stage_facts
from meshwright.frameworks.option_table import read_facts
from meshwright.stack.state_types import HALF

Facts = dict[str, Fact]
TORCH_FSDP = "dist.use_torch_fsdp2"
RECIPES = {"current": "current", "delayed": "delayed", "subchannel": "blockwise"}
"""Recipes of fp8 in the names of precisions."""
NAMES: Mapping[str, tuple[str, str | None]] = {
    "bf16_mixed": ("bf16", None),
    "fp16_mixed": ("fp16", None),
    **{
        f"{base}_with_fp8_{word}_scaling_mixed": ("fp8", recipe)
        for base in ("bf16", "fp16")
        for word, recipe in RECIPES.items()
    },
    "nemotron_h_bf16_with_fp8_current_scaling_mixed": ("fp8", "current"),
    "nanov2_bf16_with_fp8_current_scaling_mixed": ("fp8", "current"),
    "bf16_with_mxfp8_mixed": ("mxfp8", None),
    "fp16_with_mxfp8_mixed": ("mxfp8", None),
    "bf16_with_nvfp4_mixed": ("nvfp4", None),
    "nemotron_3_super_bf16_with_nvfp4_mixed": ("nvfp4", None),
    "nemotron_3_ultra_bf16_with_nvfp4_mixed": ("nvfp4", None),
}
"""Names of precisions, with the recipe of fp8; a hyphen is as good as an underscore."""


def config_facts(settings: ConfigValues, outside: OutsideFacts) -> Facts:
    """Every fact that the fields state; ``outside`` are facts besides them."""
    facts: Facts = {"stack": Fact("megatron-bridge", "fields of Megatron-Bridge")}
    facts = completed(facts | read_facts(names.TABLE.rows, settings), outside)
    parts: tuple[Callable[[ConfigValues, Facts], Facts], ...] = (
        *(_layout, _experts, _next_tokens, _sharding, stage_facts, _recompute),
        *(_precision, _width, _capacity, _optimizer, _stack),
    )
    for part in parts:
        facts |= part(settings, facts)
    meaningless = _meaningless(settings, facts)
    return {path: fact for path, fact in facts.items() if path not in meaningless}


def _meaningless(settings: ConfigValues, facts: Facts) -> set[str]:
    """Values that a saved configuration has by default although its model or its states have no such parts."""
    found: set[str] = set()
    if "model.experts" not in facts:
        found |= {"model.experts_per_token", "model.expert_intermediate"}
    if settings.truth("model.multi_latent_attention"):
        found |= {"model.kv_heads", "model.head_dim"}
    if names.EXPERTS in settings and settings.get(names.EXPERTS) is None:
        found |= {"stack.deduplicates_exchange"}
    if "sharding" not in facts or facts["sharding"].value == "none":
        found |= {"layout.dp_replicate"}
    return found


def any_on(settings: ConfigValues, keys: tuple[str, ...]) -> str | None:
    """Return the first of ``keys`` that is true."""
    return next((key for key in keys if settings.truth(key)), None)


def _layout(settings: ConfigValues, facts: Facts) -> Facts:
    found: Facts = {}
    if settings.truth(names.PP_BEFORE_DP):
        found["layout.rank_order"] = settings.fact(names.PP_BEFORE_DP, PP_BEFORE_DP_ORDER)
    kind, sizes = str(settings.get(names.CONTEXT)), settings.get(names.CONTEXT_SIZES)
    if kind in CONTEXT_OF and facts.get("layout.cp", Fact(1, "")).value > 1:
        said = context_in_megatron_words(kind, sizes if isinstance(sizes, tuple) else ())
        found["layout.context"] = settings.fact(names.CONTEXT, said)
    return found


def _experts(settings: ConfigValues, facts: Facts) -> Facts:
    """Return the default degree that cuts experts; a run without experts ends up with tp."""
    key = names.ETP
    if names.EXPERTS in settings and settings.get(names.EXPERTS) is None:
        return {"layout.etp": settings.fact(names.EXPERTS, 1)}
    if "layout.etp" in facts:
        return {}
    if "layout.ep" in facts and facts["layout.ep"].value > 1:
        return {"layout.etp": Fact(1, f"{settings.label(key)} left out: 1")}
    if "model.experts" in facts and "layout.tp" in facts:
        return {"layout.etp": Fact(facts["layout.tp"].value, f"{settings.label(key)} left out: as tp")}
    return {}


def _next_tokens(settings: ConfigValues, facts: Facts) -> Facts:
    """Layers that predict further tokens: as many as stand there, none for null."""
    key, factor = names.MTP_LAYERS, names.MTP_WEIGHT
    if key not in settings:
        return {}
    count = settings.number(key, least=0) if settings.get(key) is not None else 0
    found = {} if count is None else {NEXT_LAYERS: settings.fact(key, count)}
    if not count:
        return found
    said = settings.get(factor)
    words = settings.words(factor) + (f": {USUAL_WEIGHT}" if said is None else "")
    return found | weight_fact(USUAL_WEIGHT if said is None else str(said), words, settings.problems)


def _sharding(settings: ConfigValues, facts: Facts) -> Facts:
    sharded, distributed = any_on(settings, names.SHARDED), any_on(settings, names.DISTRIBUTED)
    if settings.truth(TORCH_FSDP):
        found = {"sharding": settings.fact(TORCH_FSDP, "zero3")}
    elif sharded:
        strategy = str(settings.get(names.STRATEGY, "no_shard"))
        if strategy not in SHARDINGS:
            settings.problem(names.STRATEGY, "no such strategy", nearest(strategy, SHARDINGS))
        found = {
            "sharding": Fact(SHARDINGS.get(strategy, "none"), f"{settings.words(sharded)} with {strategy}")
        }
    elif distributed:
        found = {"sharding": settings.fact(distributed, "zero1")}
    else:
        said = next((key for key in names.DISTRIBUTED if key in settings), None)
        return {"sharding": settings.fact(said, "none")} if said else {}
    if found["sharding"].value == "zero3":
        found["gather"] = Fact("per-layer", found["sharding"].words)
    return found


def _recompute(settings: ConfigValues, facts: Facts) -> Facts:
    key, modules = names.GRANULARITY, names.MODULES
    granularity = settings.get(key)
    if granularity not in ("full", "selective"):
        return {"recompute": settings.fact(key, "none")} if key in settings else {}
    if granularity == "full":
        return {"recompute": settings.fact(key, "full"), **_recomputed_first(settings)}
    chosen = tuple(name for name in names_of(settings.get(modules)) if name in RECOMPUTES)
    if chosen in ((), ("core_attn",)):
        return {"recompute": settings.fact(key, "selective")}
    return {"recompute": Fact(chosen, f"{settings.words(key)}, {settings.words(modules)}")}


def _recomputed_first(settings: ConfigValues) -> Facts:
    """Return the number of recomputed layers of each stage, where not all are: method ``block``."""
    block = settings.get(names.METHOD) == "block"
    count = settings.number(names.RECOMPUTED_LAYERS, least=0) if block else None
    return {} if count is None else {RECOMPUTED_FIRST: settings.fact(names.RECOMPUTED_LAYERS, count)}


def names_of(value: Any) -> tuple[str, ...]:
    """Return the names of a list, or of text with spaces between."""
    return tuple(map(str, value)) if isinstance(value, tuple) else tuple(str(value or "").split())


def _precision(settings: ConfigValues, facts: Facts) -> Facts:
    name = settings.get(names.PRECISION)
    if isinstance(name, str):
        known = NAMES.get(name.replace("-", "_"))
        if known is None:
            settings.problem(names.PRECISION, "no such precision", nearest(name, NAMES))
            return {}
        return _precision_facts(settings, names.PRECISION, *known)
    for field, precision in (
        ("fp4", "nvfp4"),
        ("fp8", "fp8"),
        ("fp16", "fp16"),
        ("bf16", "bf16"),
        ("fp32", "fp32"),
    ):
        key = f"{names.PRECISION}.{field}"
        if settings.get(key) not in (None, False):
            word = str(settings.get(f"{names.PRECISION}.fp8_recipe") or PLAIN_PRECISION["fp8_recipe"])
            if field == "fp8" and word == "mxfp8":
                return _precision_facts(settings, key, word, None)
            return _precision_facts(
                settings, key, precision, FP8_RECIPE_OF.get(word) if field == "fp8" else None
            )
    return {}


def _precision_facts(settings: ConfigValues, key: str, precision: str, recipe: str | None) -> Facts:
    facts = {"workload.precision": settings.fact(key, precision)}
    return facts if recipe is None else facts | {"workload.fp8_recipe": settings.fact(key, recipe)}


def _width(settings: ConfigValues, facts: Facts) -> Facts:
    """Return the dense feed-forward width; a model with experts may keep a number there that no layer has."""
    key = "model.ffn_hidden_size"
    width = settings.number(key) if "model.experts" not in facts else None
    return {"model.intermediate": settings.fact(key, width)} if width else {}


def _capacity(settings: ConfigValues, facts: Facts) -> Facts:
    factor = settings.get(names.CAPACITY)
    if factor is None or (names.EXPERTS in settings and settings.get(names.EXPERTS) is None):
        return {}
    policy = str(settings.get(names.DROP, "probs"))
    return capacity_facts(str(factor), policy, settings.truth(names.PAD), settings.words(names.CAPACITY))


def _stack(settings: ConfigValues, facts: Facts) -> Facts:
    """Return the facts of the stack that the options set: overlap, gradient width, attention kernel."""
    found: Facts = {}
    if settings.get(names.DISPATCHER) is not None:
        flexible = settings.get(names.DISPATCHER) == "flex"
        found["stack.deduplicates_exchange"] = settings.fact(names.DISPATCHER, flexible)
    name = settings.get(names.PRECISION)
    if isinstance(name, str):
        width = settings.fact(names.PRECISION, HALF if re.match("fp16", name) else "fp32")
        return found | _narrow_states(settings) | {"dtypes.gradient": width, "dtypes.reduce": width}
    key = f"{names.PRECISION}.grad_reduce_in_fp32"
    if key in settings:
        width = settings.fact(key, "fp32" if settings.truth(key, default=True) else HALF)
        found |= {"dtypes.gradient": width, "dtypes.reduce": width}
    if settings.truth(gather := f"{names.PRECISION}.fp8_param_gather"):
        found["dtypes.gather"] = settings.fact(gather, "fp8")
    return found | _narrow_states(settings)


def _optimizer(settings: ConfigValues, facts: Facts) -> Facts:
    """Return the optimizer's options, with the momentum of Megatron's dataclass as the default."""
    if "workload.optimizer" not in facts:
        return {}
    name = facts["workload.optimizer"].value
    return optimizer_facts(settings, name, "optimizer.", 0.95 if name == "muon" else MOMENTUM)


def _narrow_states(settings: ConfigValues) -> Facts:
    """Return the types of the optimizer's states, where the optimizer knows them."""
    if not settings.truth(names.NARROW):
        return _on_host(settings)
    words = {f"torch.{theirs}": ours for ours, theirs in TORCH_NAMES.items()}
    said = {
        option: words.get(str(settings.get(option)), str(settings.get(option)))
        for option in names.NARROW_STATES
        if option in settings
    }
    types = {names.NARROW_STATES[option]: settings.fact(option, word) for option, word in said.items()}
    return types | _on_host(settings)


def _on_host(settings: ConfigValues) -> Facts:
    """Return the share of the optimizer's states on the host; all of them unless a number from 0 to 1 is given."""
    if not settings.truth(names.OPTIMIZER_HOME):
        return {}
    given = settings.get(names.OPTIMIZER_SHARE)
    try:
        share = float(1.0 if given is None else given)
    except (TypeError, ValueError):
        share = 1.0
    key = names.OPTIMIZER_SHARE if names.OPTIMIZER_SHARE in settings else names.OPTIMIZER_HOME
    return {"offload.optimizer": settings.fact(key, share if 0 <= share <= 1 else 1.0)}
