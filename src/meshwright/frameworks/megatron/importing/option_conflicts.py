"""What Megatron refuses, ignores or runs in another way than the file seems to say, from its options alone.

Source: megatron-core 0.19.2, ``validate_args`` and ``core/transformer/transformer_config.py``. Rules that need the
model or the cluster (heads, batch, memory) are the plan's and are checked with it.
"""

from collections.abc import Callable, Iterator, Mapping

from meshwright.errors import Problem, Severity
from meshwright.frameworks.importing.command_line import GivenOption
from meshwright.frameworks.importing.imported_file import NEXT_LAYERS, Fact
from meshwright.frameworks.megatron.importing.multi_token_prediction import next_token_rules
from meshwright.frameworks.megatron.importing.pipeline_layout import layout_of
from meshwright.plans.rules.rule_input import largest_divisor

Options = Mapping[str, GivenOption]
Facts = Mapping[str, Fact]
VIRTUAL = (
    "--num-layers-per-virtual-pipeline-stage",
    "--num-virtual-stages-per-pipeline-rank",
    "--pipeline-model-parallel-layout",
)
CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS"


def rule_problems(options: Options, facts: Facts, variables: Mapping[str, str]) -> Iterator[Problem]:
    """Everything that these options contradict by themselves."""
    for rule in RULES:
        yield from rule(options, facts)
    yield from _connections(options, facts, variables)


def _number(facts: Facts, path: str, default: int = 1) -> int:
    return int(facts[path].value) if path in facts else default


def _precision(options: Options, facts: Facts) -> Iterator[Problem]:
    if "--bf16" in options and "--fp16" in options:
        yield Problem("--fp16", "--bf16 --fp16", "a run has one of them", "--bf16 alone")
    if "--fp8-format" in options and "--bf16" not in options:
        yield Problem("--fp8-format", options["--fp8-format"].words, "needs --bf16", "--bf16")


def _virtual(options: Options, facts: Facts) -> Iterator[Problem]:
    chosen = [name for name in VIRTUAL if name in options]
    pp = _number(facts, "layout.pp")
    if len(chosen) > 1:
        yield Problem(chosen[0], " ".join(chosen), "at most one of these may be given", chosen[-1])
    several = _number(facts, "pipeline.virtual_stages") > 1 or "layers_per_stage" in facts
    if several and pp == 1:
        rule = "virtual stages need --pipeline-model-parallel-size > 1"
        yield Problem(chosen[0], options[chosen[0]].words, rule, f"leave {chosen[0]} out")
    stages = facts.get("stages")
    if stages and VIRTUAL[2] in options and len(stages.value) % pp:
        rule = f"{len(stages.value)} stages mod pp {pp} = {len(stages.value) % pp}, must be 0"
        yield Problem(VIRTUAL[2], stages.words, rule, f"{max(1, round(len(stages.value) / pp)) * pp} stages")


def _layers(options: Options, facts: Facts) -> Iterator[Problem]:
    """Layers must divide over the stages unless the ends have their own numbers."""
    if "model.layers" not in facts or VIRTUAL[2] in options:
        return
    layers, pp = _number(facts, "model.layers"), _number(facts, "layout.pp")
    uneven = [n for n in ("first_layers", "last_layers") if n in facts]
    account = [n for n in options if n.startswith("--account-for-")]
    if (uneven or account) and "stages" not in facts:
        given = [facts[n].words for n in uneven] + account
        yield Problem(
            "--num-layers",
            layers,
            f"{' '.join(given)} leave no equal stages of pp = {pp}",
            f"leave {given[0].split()[0]} out",
        )
    elif not uneven and not account and layers % pp:
        rule = f"num-layers mod pp = {layers} mod {pp} = {layers % pp}, must be 0"
        text = layout_of(layers, pp, _number(facts, NEXT_LAYERS, 0))
        yield Problem("--num-layers", layers, rule, f"--pipeline-model-parallel-layout '{text}'")
    each = _number(facts, "layers_per_stage", 0)
    if each and not layers % pp and layers // pp % each:
        rule = f"layers per pipeline rank mod layers per stage = {layers // pp} mod {each}, must be 0"
        yield Problem(VIRTUAL[0], each, rule, f"{largest_divisor(layers // pp, each)}")


def _recompute(options: Options, facts: Facts) -> Iterator[Problem]:
    granularity, method = options.get("--recompute-granularity"), options.get("--recompute-method")
    full = granularity is not None and granularity.values[:1] == ("full",)
    if full and method is None:
        yield Problem(
            "--recompute-granularity", "full", "needs --recompute-method", "--recompute-method uniform"
        )
    if full and method is not None and "--recompute-num-layers" not in options:
        yield Problem(
            "--recompute-method", method.words, "needs --recompute-num-layers", "--recompute-num-layers 1"
        )
    if method is not None and not full:
        rule = "is for --recompute-granularity full: without it nothing more is recomputed"
        severity: Severity = "error" if granularity else "warning"
        yield Problem("--recompute-method", method.words, rule, "--recompute-granularity full", severity)
    if "--recompute-modules" in options and (granularity is None or full):
        rule = "is for --recompute-granularity selective: here it changes nothing"
        words = options["--recompute-modules"].words
        yield Problem("--recompute-modules", words, rule, "--recompute-granularity selective", "warning")


def _overlap(options: Options, facts: Facts) -> Iterator[Problem]:
    if "--overlap-param-gather" not in options:
        return
    sharded = ("--use-distributed-optimizer", "--use-megatron-fsdp", "--use-custom-fsdp")
    if not any(name in options for name in sharded):
        rule = "parameters are gathered only with a distributed optimizer"
        yield Problem("--overlap-param-gather", "on", rule, "--use-distributed-optimizer")
    if "--overlap-grad-reduce" not in options:
        yield Problem("--overlap-param-gather", "on", "needs --overlap-grad-reduce", "--overlap-grad-reduce")


def _tensor(options: Options, facts: Facts) -> Iterator[Problem]:
    tp = _number(facts, "layout.tp")
    if "--num-experts" in options and tp > 1 and "--sequence-parallel" not in options:
        rule = f"experts with tp = {tp} > 1 need sequence parallelism"
        yield Problem("--sequence-parallel", "off", rule, "--sequence-parallel")


def _experts(options: Options, facts: Facts) -> Iterator[Problem]:
    ep = _number(facts, "layout.ep")
    if ep > 1 and "--num-experts" not in options:
        rule = "a model without --num-experts has no experts to spread"
        yield Problem("--expert-model-parallel-size", ep, rule, "--expert-model-parallel-size 1")
    experts = _number(facts, "model.experts", 0)
    if experts and experts % ep:
        rule = f"num-experts mod ep = {experts} mod {ep} = {experts % ep}, must be 0"
        yield Problem(
            "--expert-model-parallel-size",
            ep,
            rule,
            f"--expert-model-parallel-size {largest_divisor(experts, ep)}",
        )


def _groups(options: Options, facts: Facts) -> Iterator[Problem]:
    if "--num-query-groups" in options and "--group-query-attention" not in options:
        rule = "is read with --group-query-attention only: every head gets keys and values of its own"
        words = options["--num-query-groups"].words
        yield Problem("--num-query-groups", words, rule, "--group-query-attention", "warning")


def _sharding(options: Options, facts: Facts) -> Iterator[Problem]:
    if "--use-torch-fsdp2" in options:
        if _number(facts, "layout.pp") > 1:
            yield Problem("--use-torch-fsdp2", "on", "does not run with a pipeline", "--use-megatron-fsdp")
        if _number(facts, "layout.ep") > 1:
            yield Problem("--use-torch-fsdp2", "on", "does not run with ep > 1", "--use-megatron-fsdp")
        if "--use-distributed-optimizer" in options:
            yield Problem(
                "--use-torch-fsdp2", "on", "shards by itself", "without --use-distributed-optimizer"
            )
    strategy = options.get("--data-parallel-sharding-strategy")
    if strategy and not any(name in options for name in ("--use-megatron-fsdp", "--use-custom-fsdp")):
        rule = "is for --use-megatron-fsdp: without it nothing is sharded by it"
        yield Problem(strategy.name, strategy.words, rule, "--use-megatron-fsdp", "warning")
    copies = _number(facts, "layout.dp_replicate")
    if copies > 1 and facts["sharding"].value == "none":
        rule = "instances of a distributed optimizer that is not on"
        yield Problem("--num-distributed-optimizer-instances", copies, rule, "--use-distributed-optimizer")


def _connections(options: Options, facts: Facts, variables: Mapping[str, str]) -> Iterator[Problem]:
    """Megatron asserts one connection for tp or cp before Blackwell, and more for sharded parameters."""
    value = variables.get(CONNECTIONS)
    if value is None:
        return
    sharded = any(
        name in options for name in ("--use-megatron-fsdp", "--use-custom-fsdp", "--use-torch-fsdp2")
    )
    if sharded and value == "1":
        rule = "sharded parameters travel beside the products only with more than one connection"
        yield Problem(CONNECTIONS, value, rule, f"unset {CONNECTIONS}")
    inner = _number(facts, "layout.tp") * _number(facts, "layout.cp")
    if not sharded and value != "1" and inner > 1:
        rule = f"tp·cp = {inner} > 1 needs one connection before Blackwell"
        yield Problem(CONNECTIONS, value, rule, f"export {CONNECTIONS}=1", "warning")


RULES: tuple[Callable[[Options, Facts], Iterator[Problem]], ...] = (
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
)
