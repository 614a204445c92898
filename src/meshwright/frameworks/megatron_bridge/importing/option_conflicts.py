"""Find Megatron-Bridge options that conflict, that Bridge ignores, or that it runs differently.

Sources: Megatron-Bridge 0.6.2, ``training/config.py`` (``validate``), ``models/transformer_config.py``; megatron-core
0.19.2, ``core/transformer/transformer_config.py``, ``core/parallel_state.py``. Rules that need the model or the
cluster (heads, layers of the zoo's model, memory) are the plan's and are checked with it.
"""

from collections.abc import Callable, Mapping
from math import prod

from meshwright.frameworks.importing.command_line import GivenOption
from meshwright.frameworks.importing.config_values import ConfigValues
from meshwright.frameworks.importing.imported_file import NEXT_LAYERS, number_in
from meshwright.frameworks.megatron.importing.multi_token_prediction import layout_problems
from meshwright.frameworks.megatron.importing.options_to_plan import RECOMPUTES
from meshwright.frameworks.megatron.importing.pipeline_layout import layout_of
from meshwright.frameworks.megatron_bridge import options as names
from meshwright.frameworks.megatron_bridge.importing.options_to_plan import (
    TORCH_FSDP,
    Facts,
    any_on,
    names_of,
)
from meshwright.frameworks.megatron_bridge.importing.pipeline_stages import layout_text
from meshwright.plans.rules.degrees import experts_need_sequences
from meshwright.plans.rules.rule_input import largest_divisor

SPLITS = (*names.ENDS, *names.ACCOUNT)
OTHER_MODULES = ("gdn_norm_out",)
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def config_rules(settings: ConfigValues, facts: Facts, variables: Mapping[str, str]) -> None:
    """Note everything that the fields contradict by themselves."""
    for rule in RULES:
        rule(settings, facts)
    if any_on(settings, names.SHARDED) and variables.get(CONNECTIONS) == "1":
        settings.problem(names.SHARDED[0], f"Megatron-FSDP refuses {CONNECTIONS}=1", f"unset {CONNECTIONS}")


def _virtual(settings: ConfigValues, facts: Facts) -> None:
    pp, chunks = number_in(facts, "layout.pp"), number_in(facts, "pipeline.virtual_stages")
    if "layout.pp" in facts and pp == 1 and chunks > 1:
        settings.problem(
            names.CHUNKS, "virtual stages need pipeline_model_parallel_size > 1", f"{names.CHUNKS}: null"
        )
    stages = facts["stages"].value if "stages" in facts and settings.get(names.LAYOUT) is not None else ()
    if stages and len(stages) % pp:
        rule = f"{len(stages)} stages mod pp {pp} = {len(stages) % pp}, must be 0"
        settings.problem(names.LAYOUT, rule, f"{max(1, round(len(stages) / pp)) * pp} stages")
    elif stages and "pipeline.virtual_stages" in facts and len(stages) != pp * chunks:
        rule = f"the layout has {len(stages)} stages, pp·virtual stages = {pp}·{chunks} = {pp * chunks}"
        settings.problem(names.CHUNKS, rule, f"{len(stages) // pp}")
    if stages:
        given = GivenOption(settings.label(names.LAYOUT), (layout_text(settings) or "",), 0)
        settings.problems.extend(layout_problems(given, facts))
    if settings.get(names.LAYOUT) is not None:
        for key in SPLITS:
            if settings.get(key) not in (None, False):
                settings.problem(key, f"is not allowed beside {names.LAYOUT}", "leave it out")


def _layers(settings: ConfigValues, facts: Facts) -> None:
    """Layers, where the file says them, divide over the stages unless the ends have their own numbers."""
    layers, stages = number_in(facts, "model.layers", 0), facts.get("stages")
    pp, chunks = number_in(facts, "layout.pp"), number_in(facts, "pipeline.virtual_stages")
    if not layers:
        return
    held = sum(stage.layers for stage in stages.value) if stages else layers
    if held != layers and names.LAYERS in settings:
        settings.problem(
            names.LAYOUT,
            f"the stages hold {held} layers, the model has {layers}",
            f"{layers - held:+} layers in all",
        )
    split = [key for key in SPLITS if settings.get(key) not in (None, False)]
    if split and not stages:
        settings.problem(
            split[0], f"leaves no equal stages of pp·virtual stages = {pp}·{chunks}", f"{split[0]}: null"
        )
    elif not stages and layers % (pp * chunks):
        rule = (
            f"layers mod pp·virtual stages = {layers} mod {pp * chunks} = {layers % (pp * chunks)}, must be 0"
        )
        text = layout_of(layers, pp * chunks, number_in(facts, NEXT_LAYERS, 0))
        field = names.LAYERS if names.LAYERS in settings else names.PP
        settings.problem(field, rule, f"{names.LAYOUT}: {text}")


def _recompute(settings: ConfigValues, facts: Facts) -> None:
    granularity, method = settings.get(names.GRANULARITY), settings.get(names.METHOD)
    if granularity not in (None, "full", "selective"):
        settings.problem(names.GRANULARITY, "must be full or selective", "full")
    if granularity == "full" and method is None:
        settings.problem(names.GRANULARITY, f"needs {names.METHOD}", f"{names.METHOD}: uniform")
    if granularity == "full" and settings.get(names.RECOMPUTED_LAYERS) is None:
        settings.problem(
            names.GRANULARITY, f"needs {names.RECOMPUTED_LAYERS}", f"{names.RECOMPUTED_LAYERS}: 1"
        )
    if granularity == "selective" and settings.get(names.RECOMPUTED_LAYERS) is not None:
        settings.problem(
            names.RECOMPUTED_LAYERS,
            "must be null where recomputation is selective",
            f"{names.RECOMPUTED_LAYERS}: null",
        )
    if method is not None and granularity is None:
        rule = f"recomputes nothing without {names.GRANULARITY}"
        settings.problem(names.METHOD, rule, f"{names.GRANULARITY}: full", ignored=True)
    if names_of(settings.get(names.MODULES)) and granularity != "selective":
        rule = f"is for {names.GRANULARITY} selective: here it changes nothing"
        settings.problem(names.MODULES, rule, f"{names.GRANULARITY}: selective", ignored=True)
    unknown = sorted(set(names_of(settings.get(names.MODULES))) - {*RECOMPUTES, *OTHER_MODULES})
    if granularity == "selective" and unknown:
        settings.problem(names.MODULES, f"{', '.join(unknown)[:80]}: no such modules", ", ".join(RECOMPUTES))


def _tensor(settings: ConfigValues, facts: Facts) -> None:
    tp = number_in(facts, "layout.tp")
    if "layout.tp" in facts and tp == 1 and settings.truth(names.SEQUENCE_PARALLEL):
        rule = "tensor_model_parallel_size is 1: Bridge turns it off"
        settings.problem(names.SEQUENCE_PARALLEL, rule, "model.sequence_parallel: false", ignored=True)
    experts = number_in(facts, "layout.ep") > 1 or "model.experts" in facts
    if (
        experts
        and tp > 1
        and names.SEQUENCE_PARALLEL in settings
        and not settings.truth(names.SEQUENCE_PARALLEL)
    ):
        settings.problem(names.SEQUENCE_PARALLEL, experts_need_sequences(tp), "model.sequence_parallel: true")


def _experts(settings: ConfigValues, facts: Facts) -> None:
    experts, ep = number_in(facts, "model.experts", 0), number_in(facts, "layout.ep")
    if experts and experts % ep:
        rule = f"experts mod ep = {experts} mod {ep} = {experts % ep}, must be 0"
        settings.problem(names.EP, rule, f"{largest_divisor(experts, ep)}")


def _context(settings: ConfigValues, facts: Facts) -> None:
    cp, length = number_in(facts, "layout.cp"), number_in(facts, "workload.seq_len", 0)
    if cp > 1 and length % (2 * cp):
        rule = f"sequence length mod 2·cp = {length} mod {2 * cp} = {length % (2 * cp)}, must be 0"
        settings.problem(names.CP, rule, f"dataset.seq_length: {-(-length // (2 * cp)) * 2 * cp}")
    key = names.CONTEXT_SIZES
    sizes = settings.get(key)
    if "a2a+p2p" in str(settings.get(names.CONTEXT)) and sizes is None:
        settings.problem(names.CONTEXT, f"a2a+p2p needs {key}", f"{key}: [{cp}, 1]")
    whole = isinstance(sizes, tuple) and all(type(size) is int for size in sizes)
    if whole and prod(sizes) != cp:
        settings.problem(key, f"its product {prod(sizes)} must be cp = {cp}", f"{key}: [{cp}, 1]")


def _lengths(settings: ConfigValues, facts: Facts) -> None:
    ours, data = settings.get(names.LENGTH), settings.get(names.DATA_LENGTH)
    if ours is not None and data is not None and ours != data:
        settings.problem(names.LENGTH, f"must be dataset.seq_length = {data}", f"{data}")


def _batch(settings: ConfigValues, facts: Facts) -> None:
    micro, batch = number_in(facts, "pipeline.micro_batch"), number_in(facts, "workload.global_batch", 0)
    if batch % micro:
        rule = f"global batch mod micro-batch = {batch} mod {micro} = {batch % micro}, must be 0"
        settings.problem(names.BATCH, rule, f"train.global_batch_size: {-(-batch // micro) * micro}")


def _states(settings: ConfigValues, facts: Facts) -> None:
    sharded, distributed = any_on(settings, names.SHARDED), any_on(settings, names.DISTRIBUTED)
    by_layer = str(settings.get(names.OPTIMIZER, "")).startswith("dist_")
    said = [key for key in names.DISTRIBUTED if key in settings]
    gather = names.GATHER_OVERLAPS[0]
    if settings.truth(gather) and said and not (distributed or sharded or by_layer):
        rule = "parameters are gathered only with a distributed optimizer"
        settings.problem(gather, rule, f"{names.DISTRIBUTED[0]}: true")
    if len(said) == 2 and len({settings.truth(key) for key in said}) == 2:
        off = next(key for key in said if not settings.truth(key))
        settings.problem(off, f"{distributed} is true: Bridge turns both on", f"{off}: true", ignored=True)
    strategy = names.STRATEGY
    if settings.get(strategy, "no_shard") != "no_shard" and not sharded:
        rule = "is for use_megatron_fsdp: without it nothing is sharded by it"
        settings.problem(strategy, rule, f"{names.SHARDED[0]}: true", ignored=True)
    copies = names.INSTANCES
    if (settings.number(copies) or 1) > 1 and said and not (distributed or sharded):
        settings.problem(
            copies, "instances of a distributed optimizer that is not on", f"{names.DISTRIBUTED[0]}: true"
        )


def _fsdp(settings: ConfigValues, facts: Facts) -> None:
    sharded, other = any_on(settings, names.SHARDED), TORCH_FSDP
    if sharded and settings.truth(other):
        settings.problem(other, f"{sharded} is on: one of them", f"{other}: false")
    if sharded and settings.truth(names.PP_BEFORE_DP):
        settings.problem(names.PP_BEFORE_DP, "does not run with Megatron-FSDP", "false")
    kept = any(settings.get(f"checkpoint.{name}") is not None for name in ("save", "load"))
    form = settings.get(names.CHECKPOINTS)
    if sharded and kept and form not in (None, "fsdp_dtensor"):
        settings.problem(names.CHECKPOINTS, "Megatron-FSDP needs fsdp_dtensor", "fsdp_dtensor")


def _precision(settings: ConfigValues, facts: Facts) -> None:
    for first, second in (("bf16", "fp16"), ("fp8", "fp4")):
        keys = f"{names.PRECISION}.{first}", f"{names.PRECISION}.{second}"
        if all(settings.get(key) not in (None, False) for key in keys):
            settings.problem(keys[1], f"{keys[0]} is set too: a run has one of them", f"{keys[0]} alone")


RULES: tuple[Callable[[ConfigValues, Facts], None], ...] = (
    _virtual,
    _layers,
    _recompute,
    _tensor,
    _experts,
    _context,
    _lengths,
    _batch,
    _states,
    _fsdp,
    _precision,
)
