"""Megatron's options that a plan has a word for: one table from option to fact, and the few that depend on others."""

from collections.abc import Sequence

from meshwright.frameworks.importing.command_line import CommandLine
from meshwright.frameworks.importing.imported_file import (
    RECOMPUTED_FIRST,
    Fact,
    OutsideFacts,
    Stage,
    completed,
)
from meshwright.frameworks.megatron import options as names
from meshwright.frameworks.megatron.exporting.optimizer_options import MOMENTUM, optimizer_facts
from meshwright.frameworks.megatron.exporting.plan_to_options import (
    CONTEXTS,
    DEFAULT_FP8_RECIPE,
    FP8_RECIPES,
    PP_BEFORE_DP_ORDER,
    STRATEGIES,
)
from meshwright.frameworks.megatron.importing.expert_capacity import capacity_facts
from meshwright.frameworks.megatron.importing.multi_token_prediction import next_token_facts
from meshwright.frameworks.megatron.importing.pipeline_layout import read_layout
from meshwright.frameworks.option_table import FLAG, OptionRow, read_facts
from meshwright.plans.context_parallel import Context, ContextForm, shortest
from meshwright.stack.state_types import HALF

RECOMPUTES = ("core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj", "shared_experts")
FP8_RECIPE_OF = {word: recipe for recipe, word in FP8_RECIPES.items()}
CONTEXT_OF = {word: form for form, word in CONTEXTS.items()}
SHARDINGS = {strategy: sharding for sharding, strategy in STRATEGIES.items()} | {
    "no_shard": "none",
    "optim": "zero1",
}
"""What the strategies of Megatron-FSDP shard."""
DEDUPLICATING_OPTIONS = ("--moe-flex-dispatcher-backend", "--moe-enable-deepep")
"""With DeepEP or HybridEP a token crosses to a node once."""
FSDP_OPTIONS = (names.FSDP, "--use-custom-fsdp")
"""Megatron-FSDP by its names of all releases."""
TORCH_FSDP, ACTIVATIONS, SFT = "--use-torch-fsdp2", "--recompute-activations", "--sft"
ACCOUNT = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
RELEVANT = frozenset((*names.NUMBERS, *names.DEPENDENT, *FSDP_OPTIONS, TORCH_FSDP, ACTIVATIONS, SFT))
DESCRIBED = (
    *(*names.NORMS, *names.TIED),
    OptionRow(names.SWIGLU, "shape.gated", FLAG, default=False),
)
"""Kinds of model, where its sizes are there."""
DEFAULT_STRATEGY = "optim_grads_params"
Facts = dict[str, Fact]


def option_facts(line: CommandLine, outside: OutsideFacts) -> Facts:
    """Every fact that the options set, defaults of Megatron that differ from a short plan's included.

    ``outside`` are facts besides the options.
    """
    described = {row.option for row in DESCRIBED}
    facts = read_facts((row for row in names.TABLE.rows if row.option not in described), line)
    for of_model in (_model, next_token_facts):
        facts |= of_model(line, facts)
    facts = completed(facts, outside)
    for of_one in (_layout, _sharding, _stages, _recompute, _workload, _stack):
        facts |= of_one(line, facts)
    return facts


def _model(line: CommandLine, facts: Facts) -> Facts:
    """OutsideFacts that Megatron derives where a model is described and they are left out."""
    if "model.hidden" not in facts or "model.heads" not in facts or names.LATENT in line:
        return {}
    found = read_facts(DESCRIBED, line)
    if names.GROUPED not in line:
        words = f"{names.GROUPS} without {names.GROUPED}: as heads"
        found["model.kv_heads"] = Fact(facts["model.heads"].value, words)
    if names.EXPERTS not in line and "model.intermediate" not in facts and names.SWIGLU not in line:
        words = f"{names.WIDTH} left out: 4·hidden"
        found["model.intermediate"] = Fact(4 * facts["model.hidden"].value, words)
    return found


def _layout(line: CommandLine, facts: Facts) -> Facts:
    found: Facts = {}
    if "model.experts" in facts and "layout.etp" not in facts:
        tp = facts.get("layout.tp", Fact(1, "")).value
        found["layout.etp"] = Fact(tp, f"{names.ETP} left out: as tp")
    if names.PP_BEFORE_DP in line:
        found["layout.rank_order"] = Fact(PP_BEFORE_DP_ORDER, names.PP_BEFORE_DP)
    kind = line.get(names.CONTEXT, "p2p")
    if kind in CONTEXT_OF and facts.get("layout.cp", Fact(1, "")).value > 1:
        given = line.options.get(names.CONTEXT_SIZES)
        sizes = [int(value) for value in given.values if value.isdecimal()] if given else []
        found["layout.context"] = Fact(context_in_megatron_words(kind, sizes), f"{names.CONTEXT} {kind}")
    return found


def context_in_megatron_words(kind: str, sizes: Sequence[int]) -> ContextForm | Context | None:
    """Return a plan's context form from Megatron's words; of two sizes the first is the inner one's."""
    form = CONTEXT_OF[kind]
    if not form.endswith("+ulysses"):
        return shortest(Context.model_validate({"form": form}))
    return shortest(Context(form="ring", ulysses=sizes[0] if sizes else 1))


def _sharding(line: CommandLine, facts: Facts) -> Facts:
    fsdp = next((name for name in FSDP_OPTIONS if name in line), None)
    if fsdp:
        strategy = line.get(names.STRATEGY, DEFAULT_STRATEGY)
        found = {"sharding": Fact(SHARDINGS.get(strategy, "none"), f"{fsdp} with strategy {strategy}")}
        if found["sharding"].value == "zero3":
            found["gather"] = Fact("per-layer", fsdp)
        return found
    if TORCH_FSDP in line:
        return {"sharding": Fact("zero3", TORCH_FSDP), "gather": Fact("per-layer", TORCH_FSDP)}
    if names.DISTRIBUTED in line:
        return {"sharding": Fact("zero1", names.DISTRIBUTED)}
    return {"sharding": Fact("none", f"no {names.DISTRIBUTED}")}


def _stages(line: CommandLine, facts: Facts) -> Facts:
    """Stages that are written out, and the schedule that their number means."""
    given = line.options.get(names.LAYOUT)
    if given:
        stages = read_layout(given, line.problems)
        return {"stages": Fact(stages, given.words)} if stages else {}
    first, last, layers = (facts.get(n) for n in ("first_layers", "last_layers", "model.layers"))
    account = (ACCOUNT[0] in line, ACCOUNT[1] in line)
    if not (first or last or any(account)):
        return {}
    pp = facts.get("layout.pp", Fact(1, "")).value
    chunks = facts.get("pipeline.virtual_stages", Fact(1, "")).value
    of_ends = first and first.value, last and last.value
    counts = layers and (
        _own_ends(layers.value, pp, chunks, *of_ends)
        if first or last
        else _even(layers.value, pp * chunks, account)
    )
    if not counts:
        return {}
    ends = len(counts) - 1
    stages = tuple(Stage(i == 0, count, i == ends) for i, count in enumerate(counts))
    words = [fact.words for fact in (first, last) if fact] + [n for n in ACCOUNT if n in line]
    return {"stages": Fact(stages, " ".join(words))}


def _own_ends(layers: int, ranks: int, chunks: int, first: int | None, last: int | None) -> list[int] | None:
    """Layers of every stage when the first or last rank has its own number, for all of its chunks together.

    None where a rank's layers, or those between, do not divide.
    """
    rest, between = layers - (first or 0) - (last or 0), ranks - (first is not None) - (last is not None)
    if between < 0 or rest < 0 or (rest % between if between else rest):
        return None
    each = rest // max(1, between)
    of_ranks = [*([first] if first else []), *[each] * between, *([last] if last else [])]
    return (
        None
        if any(count % chunks for count in of_ranks)
        else [count // chunks for count in of_ranks] * chunks
    )


def _even(layers: int, stages: int, account: tuple[bool, bool]) -> list[int] | None:
    """Layers of every stage when embedding and loss may count as one; None where they do not divide."""
    if (layers + sum(account)) % stages:
        return None
    even = (layers + sum(account)) // stages
    counts = [even] * stages
    counts[0] -= account[0]
    counts[-1] -= account[1]
    return counts


def _recompute(line: CommandLine, facts: Facts) -> Facts:
    granularity = line.get(names.GRANULARITY) or ("selective" if ACTIVATIONS in line else "")
    if granularity not in ("full", "selective"):
        return {"recompute": Fact("none", f"no {names.GRANULARITY}")}
    said = line.options[names.GRANULARITY if names.GRANULARITY in line else ACTIVATIONS].words
    if granularity == "full":
        return {"recompute": Fact("full", said), **_recomputed_first(line)}
    modules = line.options.get(names.MODULES)
    chosen = tuple(m for m in modules.values if m in RECOMPUTES) if modules else ()
    if not chosen or chosen == ("core_attn",):
        return {"recompute": Fact("selective", said)}
    return {"recompute": Fact(chosen, f"{said} {modules.words if modules else ''}")}


def _recomputed_first(line: CommandLine) -> Facts:
    """Return the number of recomputed layers of each stage, where not all are: method ``block``."""
    name = names.RECOMPUTED_LAYERS
    if line.get(names.METHOD) != "block" or name not in line:
        return {}
    count = 0 if line.get(name) == "0" else line.number(name)
    return {} if count is None else {RECOMPUTED_FIRST: line.fact(name, count)}


def _workload(line: CommandLine, facts: Facts) -> Facts:
    plain = {names.FP16: "fp16", names.BF16: "bf16"}
    name = next((name for name in plain if name in line), "")
    found = {"workload.precision": Fact(plain.get(name, "fp32"), name or "neither --bf16 nor --fp16")}
    recipe = line.get(names.FP8_RECIPE) or DEFAULT_FP8_RECIPE
    low = {names.FP8: "mxfp8" if recipe == "mxfp8" else "fp8", names.FP4: "nvfp4"}
    for name, precision in low.items():
        if name in line:
            found["workload.precision"] = line.fact(name, precision)
    if found["workload.precision"].value == "fp8":
        said = names.FP8_RECIPE if names.FP8_RECIPE in line else names.FP8
        found["workload.fp8_recipe"] = line.fact(said, FP8_RECIPE_OF.get(recipe))
    if "workload.optimizer" in facts:
        found |= optimizer_facts(line, facts["workload.optimizer"].value, "--", MOMENTUM)
    if SFT in line:
        found["workload.task"] = Fact("sft", SFT)
    if names.CAPACITY in line and "model.experts" in facts:
        policy, padded = line.get(names.DROP, "probs"), names.PAD in line
        words = line.options[names.CAPACITY].words
        found |= capacity_facts(line.get(names.CAPACITY, ""), policy, padded, words)
    return found


def _optimizer_share(line: CommandLine) -> Fact:
    """Return the share of the optimizer on the host; 1 where none is given, or no number from 0 to 1."""
    try:
        share = float(line.get(names.OPTIMIZER_SHARE, "1"))
    except ValueError:
        share = 1.0
    key = names.OPTIMIZER_SHARE if names.OPTIMIZER_SHARE in line else names.OPTIMIZER_HOME
    return line.fact(key, share if 0 <= share <= 1 else 1.0)


def _stack(line: CommandLine, facts: Facts) -> Facts:
    """Return the facts of the stack that the options set: overlap, gradient width, attention kernel."""
    halved = next((name for name in (names.REDUCE_BF16, names.FP16) if name in line), "")
    if names.ACCUMULATE_FP32 in line and halved == names.FP16:
        halved = ""
    width = Fact(HALF if halved else "fp32", halved)
    found = {
        "stack": Fact("megatron-core", "Megatron options"),
        "dtypes.gradient": width,
        "dtypes.reduce": width,
    }
    if names.NARROW in line:
        found |= {
            path: line.fact(option, line.get(option, "fp32"))
            for option, path in names.NARROW_STATES.items()
            if option in line
        }
    if names.OPTIMIZER_HOME in line:
        found["offload.optimizer"] = _optimizer_share(line)
    if names.GATHER_FP8 in line:
        found["dtypes.gather"] = line.fact(names.GATHER_FP8, "fp8")
    once = next((name for name in DEDUPLICATING_OPTIONS if name in line), None)
    if once and line.get(names.DISPATCHER, "flex") == "flex":
        found["stack.deduplicates_exchange"] = line.fact(once, True)
    if line.get(names.ATTENTION, "auto") in ("unfused", "local"):
        found["stack.attention"] = line.fact(names.ATTENTION, "fused-softmax")
    if line.get(names.LAYERS_OF, "") == "local":
        found["stack.norm_products"] = line.fact(names.LAYERS_OF, ())
    return found
