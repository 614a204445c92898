"""Megatron's options that a plan has a word for: one table from option to fact, and the few that depend on others."""

from collections.abc import Mapping, Sequence

from meshwright.errors import Problem
from meshwright.frameworks.exporting.expert_capacity import FACTOR, PAD, POLICY
from meshwright.frameworks.importing.command_line import GivenOption, whole_number
from meshwright.frameworks.importing.imported_file import Fact, Stage
from meshwright.frameworks.megatron.exporting.multi_token_prediction import LAYERS, WEIGHT
from meshwright.frameworks.megatron.exporting.plan_options import CONTEXTS, STRATEGIES
from meshwright.frameworks.megatron.importing.expert_capacity import capacity_facts
from meshwright.frameworks.megatron.importing.multi_token_prediction import next_token_facts
from meshwright.frameworks.megatron.importing.pipeline_layout import read_layout
from meshwright.plans.context_parallel import Context, ContextForm, shortest

NUMBERS: Mapping[str, str] = {
    "--tensor-model-parallel-size": "layout.tp",
    "--pipeline-model-parallel-size": "layout.pp",
    "--context-parallel-size": "layout.cp",
    "--expert-model-parallel-size": "layout.ep",
    "--expert-tensor-parallel-size": "layout.etp",
    "--num-distributed-optimizer-instances": "layout.dp_replicate",
    "--num-virtual-stages-per-pipeline-rank": "pipeline.virtual_stages",
    "--num-layers-per-virtual-pipeline-stage": "layers_per_stage",
    "--micro-batch-size": "pipeline.micro_batch",
    "--global-batch-size": "workload.global_batch",
    "--seq-length": "workload.seq_len",
    "--num-layers": "model.layers",
    "--hidden-size": "model.hidden",
    "--ffn-hidden-size": "model.intermediate",
    "--num-attention-heads": "model.heads",
    "--num-query-groups": "model.kv_heads",
    "--kv-channels": "model.head_dim",
    "--num-experts": "model.experts",
    "--moe-router-topk": "model.experts_per_token",
    "--moe-ffn-hidden-size": "model.expert_intermediate",
    "--vocab-size": "model.vocab",
    "--max-position-embeddings": "shape.positions",
    "--decoder-first-pipeline-num-layers": "first_layers",
    "--decoder-last-pipeline-num-layers": "last_layers",
}
"""Options that are a number of a plan, of its workload or of its model."""
DEVICES: Mapping[str, tuple[str, ...]] = {
    "nodes": ("--nnodes", "--num_nodes", "--nodes"),
    "per_node": ("--nproc_per_node", "--nproc-per-node", "--gpus-per-node", "--num_gpus"),
}
PRECISIONS = {"mxfp8": "mxfp8"}
RECOMPUTES = ("core_attn", "layernorm", "mlp", "moe", "moe_act", "mla_up_proj", "shared_experts")
CONTEXT_OF = {word: form for form, word in CONTEXTS.items()}
DEDUPLICATING_OPTIONS = ("--moe-flex-dispatcher-backend", "--moe-enable-deepep")
"""With DeepEP or HybridEP a token crosses to a node once."""
OTHERS = (
    "--sequence-parallel",
    "--use-tp-pp-dp-mapping",
    "--use-distributed-optimizer",
    "--use-megatron-fsdp",
    "--use-custom-fsdp",
    "--use-torch-fsdp2",
    "--data-parallel-sharding-strategy",
    "--pipeline-model-parallel-layout",
    "--recompute-granularity",
    "--recompute-activations",
    "--recompute-modules",
    "--recompute-method",
    "--recompute-num-layers",
    "--bf16",
    "--fp16",
    "--fp8-format",
    "--fp8-recipe",
    "--fp4-format",
    "--optimizer",
    "--overlap-grad-reduce",
    "--overlap-param-gather",
    "--sft",
    FACTOR,
    POLICY,
    PAD,
    LAYERS,
    WEIGHT,
    "--group-query-attention",
)
RELEVANT = frozenset((*NUMBERS, *OTHERS))
Options = Mapping[str, GivenOption]
Facts = dict[str, Fact]


def option_facts(options: Options, problems: list[Problem]) -> Facts:
    """Every fact that the options set, defaults of Megatron that differ from a short plan's included."""
    facts: Facts = {}
    for name, path in NUMBERS.items():
        if name in options:
            value = whole_number(options[name], problems)
            if value is not None:
                facts[path] = Fact(value, options[name].words)
    parts = (_model, next_token_facts, _layout, _sharding, _stages, _recompute, _workload, _capacity, _stack)
    for of_one in parts:
        facts |= of_one(options, facts, problems)
    return facts


def _model(options: Options, facts: Facts, problems: list[Problem]) -> Facts:
    """Sizes that Megatron derives where a model is described and they are left out."""
    if "model.hidden" not in facts or "model.heads" not in facts or "--multi-latent-attention" in options:
        return {}
    norm = _first(options, "--normalization", "LayerNorm")
    found: Facts = {
        "shape.gated": _flag(options, "--swiglu"),
        "shape.rmsnorm": Fact(norm == "RMSNorm", f"--normalization {norm}"),
        "shape.tied": Fact("--untie-embeddings-and-output-weights" not in options, ""),
    }
    if "--group-query-attention" not in options:
        words = "--num-query-groups without --group-query-attention: as heads"
        found["model.kv_heads"] = Fact(facts["model.heads"].value, words)
    if "--num-experts" not in options and "model.intermediate" not in facts and "--swiglu" not in options:
        words = "--ffn-hidden-size left out: 4·hidden"
        found["model.intermediate"] = Fact(4 * facts["model.hidden"].value, words)
    return found


def _layout(options: Options, facts: Facts, problems: list[Problem]) -> Facts:
    found = {"layout.sequence_parallel": _flag(options, "--sequence-parallel")}
    if "--num-experts" in options and "layout.etp" not in facts:
        tp = facts.get("layout.tp", Fact(1, "")).value
        found["layout.etp"] = Fact(tp, "--expert-tensor-parallel-size left out: as tp")
    if "--use-tp-pp-dp-mapping" in options:
        order = ("tp", "cp", "pp", "dp_shard", "dp_replicate")
        found["layout.rank_order"] = Fact(order, "--use-tp-pp-dp-mapping")
    kind = _first(options, "--cp-comm-type", "p2p")
    if kind in CONTEXT_OF and facts.get("layout.cp", Fact(1, "")).value > 1:
        given = options.get("--hierarchical-context-parallel-sizes")
        sizes = [int(value) for value in given.values if value.isdecimal()] if given else []
        found["layout.context"] = Fact(context_in_megatron_words(kind, sizes), f"--cp-comm-type {kind}")
    return found


def context_in_megatron_words(kind: str, sizes: Sequence[int]) -> ContextForm | Context | None:
    """What a plan says of a form in Megatron's words; of two dimensions the first size is the inner one's."""
    form = CONTEXT_OF[kind]
    if not form.endswith("+ulysses"):
        return shortest(Context.model_validate({"form": form}))
    return shortest(Context(form="ring", ulysses=sizes[0] if sizes else 1))


def _sharding(options: Options, facts: Facts, problems: list[Problem]) -> Facts:
    names = {strategy: sharding for sharding, strategy in STRATEGIES.items()}
    names |= {"no_shard": "none", "optim": "zero1"}
    fsdp = next((n for n in ("--use-megatron-fsdp", "--use-custom-fsdp") if n in options), None)
    if fsdp:
        strategy = _first(options, "--data-parallel-sharding-strategy", "no_shard")
        found = {"sharding": Fact(names.get(strategy, "none"), f"{fsdp} with strategy {strategy}")}
        if found["sharding"].value == "zero3":
            found["gather"] = Fact("per-layer", fsdp)
        return found
    if "--use-torch-fsdp2" in options:
        return {
            "sharding": Fact("zero3", "--use-torch-fsdp2"),
            "gather": Fact("per-layer", "--use-torch-fsdp2"),
        }
    if "--use-distributed-optimizer" in options:
        return {"sharding": Fact("zero1", "--use-distributed-optimizer")}
    return {"sharding": Fact("none", "no --use-distributed-optimizer")}


def _stages(options: Options, facts: Facts, problems: list[Problem]) -> Facts:
    """Stages that are written out, and the schedule that their number means."""
    given = options.get("--pipeline-model-parallel-layout")
    if given:
        stages = read_layout(given, problems)
        return {"stages": Fact(stages, given.words)} if stages else {}
    first, last, layers = (facts.get(n) for n in ("first_layers", "last_layers", "model.layers"))
    account = _accounted(options)
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
    words = [fact.words for fact in (first, last) if fact] + [n for n in ACCOUNT if n in options]
    return {"stages": Fact(stages, " ".join(words))}


ACCOUNT = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")


def _accounted(options: Options) -> tuple[bool, bool]:
    embed, loss = (name in options for name in ACCOUNT)
    return embed, loss


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


def _recompute(options: Options, facts: Facts, problems: list[Problem]) -> Facts:
    granularity = _first(options, "--recompute-granularity", "")
    if "--recompute-activations" in options:
        granularity = granularity or "selective"
    if granularity not in ("full", "selective"):
        return {"recompute": Fact("none", "no --recompute-granularity")}
    words = options.get("--recompute-granularity", options.get("--recompute-activations"))
    assert words is not None
    if granularity == "full":
        return {"recompute": Fact("full", words.words)}
    modules = options.get("--recompute-modules")
    chosen = tuple(m for m in modules.values if m in RECOMPUTES) if modules else ()
    if not chosen or chosen == ("core_attn",):
        return {"recompute": Fact("selective", words.words)}
    return {"recompute": Fact(chosen, f"{words.words} {modules.words if modules else ''}")}


def _workload(options: Options, facts: Facts, problems: list[Problem]) -> Facts:
    precision = next((n for n in ("fp16", "bf16") if f"--{n}" in options), "fp32")
    words = f"--{precision}" if precision != "fp32" else "neither --bf16 nor --fp16"
    low = {
        "--fp4-format": "nvfp4",
        "--fp8-format": PRECISIONS.get(_first(options, "--fp8-recipe", ""), "fp8"),
    }
    for name, value in reversed(low.items()):
        if name in options:
            precision, words = value, options[name].words
    found = {"workload.precision": Fact(precision, words)}
    if "--sft" in options:
        found["workload.task"] = Fact("sft", "--sft")
    optimizer = _first(options, "--optimizer", "adam")
    if optimizer in ("adam", "sgd"):
        found["workload.optimizer"] = Fact(
            {"adam": "adamw"}.get(optimizer, optimizer), f"--optimizer {optimizer}"
        )
    return found


def _capacity(options: Options, facts: Facts, problems: list[Problem]) -> Facts:
    if FACTOR not in options or "model.experts" not in facts:
        return {}
    policy = _first(options, POLICY, "probs")
    return capacity_facts(_first(options, FACTOR, ""), policy, PAD in options, options[FACTOR].words)


def _stack(options: Options, facts: Facts, problems: list[Problem]) -> Facts:
    """What of the run is a fact of the stack rather than of the plan."""
    halved = next((name for name in ("--grad-reduce-in-bf16", "--fp16") if name in options), "")
    if "--accumulate-allreduce-grads-in-fp32" in options and halved == "--fp16":
        halved = ""
    width = Fact(2 if halved else 4, halved)
    found = {
        "stack": Fact("megatron-core", "Megatron options"),
        "stack.overlap_gradient_reduction": _flag(options, "--overlap-grad-reduce"),
        "stack.overlap_parameter_gather": _flag(options, "--overlap-param-gather"),
        "stack.gradient_bytes": width,
        "stack.gradient_communication_bytes": width,
    }
    once = next((name for name in DEDUPLICATING_OPTIONS if name in options), None)
    if once and _first(options, "--moe-token-dispatcher-type", "flex") == "flex":
        found["stack.deduplicates_exchange"] = Fact(True, options[once].words)
    beside = "--overlap-moe-expert-parallel-comm"
    if beside in options:
        found["stack.overlap_expert_exchange"] = Fact(True, beside)
    unfused = ("unfused", "local")
    if _first(options, "--attention-backend", "auto") in unfused:
        found["stack.attention"] = Fact("fused-softmax", options["--attention-backend"].words)
    return found


def _flag(options: Options, name: str) -> Fact:
    return Fact(name in options, name if name in options else f"no {name}")


def _first(options: Options, name: str, default: str) -> str:
    given = options.get(name)
    return given.values[0] if given and given.values else default
