"""Find Megatron options that conflict, that Megatron ignores, or that it runs differently.

Source: megatron-core 0.19.2, ``validate_args`` and ``core/transformer/transformer_config.py``. Rules that need the
model or the cluster (heads, batch, memory) are the plan's and are checked with it.
"""

from collections.abc import Callable, Iterator, Mapping
from math import prod

from meshwright.errors import Problem, Severity
from meshwright.frameworks.importing.command_line import CommandLine
from meshwright.frameworks.importing.imported_file import NEXT_LAYERS, Fact, number_in
from meshwright.frameworks.importing.option_requirements import line_problems
from meshwright.frameworks.megatron import options as names
from meshwright.frameworks.megatron.importing.multi_token_prediction import next_token_rules
from meshwright.frameworks.megatron.importing.options_to_plan import ACCOUNT, FSDP_OPTIONS, TORCH_FSDP
from meshwright.frameworks.megatron.importing.pipeline_layout import layout_of
from meshwright.plans.rules.degrees import experts_need_sequences
from meshwright.plans.rules.rule_input import largest_divisor

Facts = Mapping[str, Fact]
VIRTUAL = (names.CHUNK_LAYERS, names.CHUNKS, names.LAYOUT)
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"
PLACE = "meshwright.frameworks.megatron", "megatron-core-0.19.2"


def rule_problems(line: CommandLine, facts: Facts, variables: Mapping[str, str]) -> Iterator[Problem]:
    """Everything that these options contradict by themselves."""
    for rule in RULES:
        yield from rule(line, facts)
    yield from _connections(line, facts, variables)


def _precision(line: CommandLine, facts: Facts) -> Iterator[Problem]:
    if names.BF16 in line and names.FP16 in line:
        yield Problem(names.FP16, "--bf16 --fp16", "a run has one of them", "--bf16 alone")
    if names.FP8 in line and names.BF16 not in line:
        yield Problem(names.FP8, line.options[names.FP8].words, "needs --bf16", names.BF16)


def _virtual(line: CommandLine, facts: Facts) -> Iterator[Problem]:
    chosen = [name for name in VIRTUAL if name in line]
    pp = number_in(facts, "layout.pp")
    if len(chosen) > 1:
        yield Problem(chosen[0], " ".join(chosen), "at most one of these may be given", chosen[-1])
    several = number_in(facts, "pipeline.virtual_stages") > 1 or "layers_per_stage" in facts
    if several and pp == 1:
        rule = "virtual stages need --pipeline-model-parallel-size > 1"
        yield Problem(chosen[0], line.options[chosen[0]].words, rule, f"leave {chosen[0]} out")
    stages = facts.get("stages")
    if stages and VIRTUAL[2] in line and len(stages.value) % pp:
        rule = f"{len(stages.value)} stages mod pp {pp} = {len(stages.value) % pp}, must be 0"
        yield Problem(VIRTUAL[2], stages.words, rule, f"{max(1, round(len(stages.value) / pp)) * pp} stages")


def _layers(line: CommandLine, facts: Facts) -> Iterator[Problem]:
    """Layers must divide over the stages unless the ends have their own numbers."""
    if "model.layers" not in facts or VIRTUAL[2] in line:
        return
    layers, pp = number_in(facts, "model.layers"), number_in(facts, "layout.pp")
    uneven = [n for n in ("first_layers", "last_layers") if n in facts]
    account = [n for n in line.options if n in ACCOUNT]
    if (uneven or account) and "stages" not in facts:
        given = [facts[n].words for n in uneven] + account
        yield Problem(
            names.LAYERS,
            layers,
            f"{' '.join(given)} leave no equal stages of pp = {pp}",
            f"leave {given[0].split()[0]} out",
        )
    elif not uneven and not account and layers % pp:
        rule = f"num-layers mod pp = {layers} mod {pp} = {layers % pp}, must be 0"
        text = layout_of(layers, pp, number_in(facts, NEXT_LAYERS, 0))
        field, value = (names.LAYERS, layers) if names.LAYERS in line else (names.PP, pp)
        yield Problem(field, value, rule, f"--pipeline-model-parallel-layout '{text}'")
    each = number_in(facts, "layers_per_stage", 0)
    if each and not layers % pp and layers // pp % each:
        rule = f"layers per pipeline rank mod layers per stage = {layers // pp} mod {each}, must be 0"
        yield Problem(VIRTUAL[0], each, rule, f"{largest_divisor(layers // pp, each)}")


def _recompute(line: CommandLine, facts: Facts) -> Iterator[Problem]:
    granularity, method = line.options.get(names.GRANULARITY), line.options.get(names.METHOD)
    full = granularity is not None and granularity.values[:1] == ("full",)
    if full and method is None:
        yield Problem(names.GRANULARITY, "full", "needs --recompute-method", "--recompute-method uniform")
    if full and method is not None and names.RECOMPUTED_LAYERS not in line:
        yield Problem(names.METHOD, method.words, "needs --recompute-num-layers", "--recompute-num-layers 1")
    if method is not None and not full:
        rule = "is for --recompute-granularity full: without it nothing more is recomputed"
        severity: Severity = "error" if granularity else "warning"
        yield Problem(names.METHOD, method.words, rule, "--recompute-granularity full", severity)
    if names.MODULES in line and (granularity is None or full):
        rule = "is for --recompute-granularity selective: here it changes nothing"
        words = line.options[names.MODULES].words
        yield Problem(names.MODULES, words, rule, "--recompute-granularity selective", "warning")


def _overlap(line: CommandLine, facts: Facts) -> Iterator[Problem]:
    if names.GATHER_OVERLAP not in line:
        return
    if not any(name in line for name in (names.DISTRIBUTED, *FSDP_OPTIONS)):
        rule = "parameters are gathered only with a distributed optimizer"
        yield Problem(names.GATHER_OVERLAP, "on", rule, names.DISTRIBUTED)
    if names.GRADIENT_OVERLAP not in line:
        yield Problem(names.GATHER_OVERLAP, "on", "needs --overlap-grad-reduce", names.GRADIENT_OVERLAP)


def _tensor(line: CommandLine, facts: Facts) -> Iterator[Problem]:
    tp = number_in(facts, "layout.tp")
    if "model.experts" in facts and tp > 1 and names.SEQUENCE_PARALLEL not in line:
        yield Problem(names.SEQUENCE_PARALLEL, "off", experts_need_sequences(tp), names.SEQUENCE_PARALLEL)


def _experts(line: CommandLine, facts: Facts) -> Iterator[Problem]:
    ep = number_in(facts, "layout.ep")
    if ep > 1 and "model.experts" not in facts:
        rule = "a model without --num-experts has no experts to spread"
        yield Problem(names.EP, ep, rule, "--expert-model-parallel-size 1")
    experts = number_in(facts, "model.experts", 0)
    if experts and experts % ep:
        rule = f"num-experts mod ep = {experts} mod {ep} = {experts % ep}, must be 0"
        yield Problem(
            names.EP,
            ep,
            rule,
            f"--expert-model-parallel-size {largest_divisor(experts, ep)}",
        )


def _groups(line: CommandLine, facts: Facts) -> Iterator[Problem]:
    if names.GROUPS in line and names.GROUPED not in line:
        rule = "is read with --group-query-attention only: every head gets keys and values of its own"
        words = line.options[names.GROUPS].words
        yield Problem(names.GROUPS, words, rule, names.GROUPED, "warning")


def _sharding(line: CommandLine, facts: Facts) -> Iterator[Problem]:
    if TORCH_FSDP in line:
        if number_in(facts, "layout.pp") > 1:
            yield Problem(TORCH_FSDP, "on", "does not run with a pipeline", names.FSDP)
        if number_in(facts, "layout.ep") > 1:
            yield Problem(TORCH_FSDP, "on", "does not run with ep > 1", names.FSDP)
        if names.DISTRIBUTED in line:
            yield Problem(TORCH_FSDP, "on", "shards by itself", "without --use-distributed-optimizer")
    strategy = line.options.get(names.STRATEGY)
    if strategy and not any(name in line for name in FSDP_OPTIONS):
        rule = "is for --use-megatron-fsdp: without it nothing is sharded by it"
        yield Problem(strategy.name, strategy.words, rule, names.FSDP, "warning")
    copies = number_in(facts, "layout.dp_replicate")
    if copies > 1 and facts["sharding"].value == "none":
        rule = "instances of a distributed optimizer that is not on"
        yield Problem(names.INSTANCES, copies, rule, names.DISTRIBUTED)


def _context_forms(line: CommandLine, facts: Facts) -> Iterator[Problem]:
    """Context parallelism has one form, or one for each layer; of two levels it has two sizes."""
    given, cp = line.options.get(names.CONTEXT), number_in(facts, "layout.cp")
    if given is None or not given.known or cp == 1:
        return
    layers, forms = number_in(facts, "model.layers", 0), len(given.values)
    if layers and forms not in (1, layers):
        rule = f"has {forms} forms, and must have one, or one for each of {layers} layers"
        yield Problem(names.CONTEXT, given.words, rule, f"{names.CONTEXT} {given.values[0]}")
    sizes = line.options.get(names.CONTEXT_SIZES)
    if "a2a+p2p" in given.values and sizes is None:
        hint = f"{names.CONTEXT_SIZES} 2 {cp // 2}" if cp % 2 == 0 else f"{names.CONTEXT} p2p"
        yield Problem(names.CONTEXT, given.words, f"needs {names.CONTEXT_SIZES}", hint)
    levels = [int(value[:9]) for value in sizes.values if value.isdecimal()] if sizes else []
    if sizes and sizes.known and levels and prod(levels) != cp:
        rule = f"the product of {'·'.join(map(str, levels))} = {prod(levels)} must be cp = {cp}"
        hint = (
            f"{names.CONTEXT_SIZES} {levels[0]} {cp // levels[0]}"
            if cp % levels[0] == 0
            else f"leave {sizes.name} out"
        )
        yield Problem(names.CONTEXT_SIZES, sizes.words, rule, hint)


def _connections(line: CommandLine, facts: Facts, variables: Mapping[str, str]) -> Iterator[Problem]:
    """Megatron asserts one connection for tp or cp before Blackwell, and more for sharded parameters."""
    value = variables.get(CONNECTIONS)
    if value is None:
        return
    sharded = any(name in line for name in (*FSDP_OPTIONS, TORCH_FSDP))
    if sharded and value == "1":
        rule = "sharded parameters travel beside the products only with more than one connection"
        yield Problem(CONNECTIONS, value, rule, f"unset {CONNECTIONS}")
    inner = number_in(facts, "layout.tp") * number_in(facts, "layout.cp")
    if not sharded and value != "1" and inner > 1:
        rule = f"tp·cp = {inner} > 1 needs one connection before Blackwell"
        yield Problem(CONNECTIONS, value, rule, f"export {CONNECTIONS}=1", "warning")


def _requirements(line: CommandLine, facts: Facts) -> Iterator[Problem]:
    """Options that lack another one, or that exclude it (``megatron-core-0.19.2-requirements.csv``)."""
    numbers = {f"@{axis}": number_in(facts, f"layout.{axis}") for axis in ("pp", "tp", "cp", "ep")}
    numbers["@virtual"] = _virtual_stages(facts, numbers["@pp"])
    yield from line_problems(PLACE, line.options, numbers)


def _virtual_stages(facts: Facts, pp: int) -> int:
    """Return the stages of a pipeline rank, by whichever option says them."""
    stages, each = facts.get("stages"), number_in(facts, "layers_per_stage", 0)
    if stages:
        return max(1, len(stages.value) // pp)
    layers = number_in(facts, "model.layers", 0)
    return layers // (pp * each) if each and layers else number_in(facts, "pipeline.virtual_stages")


RULES: tuple[Callable[[CommandLine, Facts], Iterator[Problem]], ...] = (
    _precision,
    _virtual,
    _layers,
    _recompute,
    _overlap,
    _tensor,
    _experts,
    _groups,
    _sharding,
    next_token_rules,
    _context_forms,
    _requirements,
)
