"""From what a file says to a plan: degrees that follow from the cluster, batch that follows from degrees, stages.

What a file leaves open is filled as its framework would: data parallelism is what devices / (pp·cp·tp) leaves, stated
degrees of sharding divide it, the global batch is micro-batch · accumulation · dp. Where the numbers contradict each
other, the cluster or the model, that is a problem in the file's own words and there is no plan.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

from meshwright.errors import Problem, attempted
from meshwright.frameworks.importing.explicit_stages import spread_layers, uneven_stages
from meshwright.frameworks.importing.imported_file import ImportedFile
from meshwright.frameworks.importing.stack_from_facts import said_types
from meshwright.frameworks.importing.stage_recompute import with_recomputed_layers
from meshwright.model.adapter_targets import chosen_targets, own_names, unknown_targets
from meshwright.model.architecture import Architecture
from meshwright.model.operators.blocks import build_graph
from meshwright.plans.files.validation_messages import validated
from meshwright.plans.forms.conversion import expand
from meshwright.plans.forms.long import LongPlan
from meshwright.plans.forms.short import ShortPlan
from meshwright.plans.rules.rule_input import largest_divisor
from meshwright.stack.load import load_stack
from meshwright.stack.state_types import types_of, usual_types
from meshwright.workload.optimizer_choice import Optimizer

AXES = ("pp", "cp", "tp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Nouns of the imported plan, as a plan file names them, and the batch if the file leaves it open."""

    model: str
    cluster: str
    stack: str
    devices: int
    seq_len: int | None = None
    global_batch: int | None = None


class Assembled(NamedTuple):
    """The plan of a file, None where one of its ``problems`` is an error. The ``draft`` has what the file says."""

    plan: ShortPlan | LongPlan | None
    draft: ShortPlan | None
    problems: list[Problem]


def assemble(foreign: ImportedFile, target: Target, arch: Architecture) -> Assembled:
    """Return the plan of a file on a cluster. Numbers that ``target`` has stand above the file's."""
    problems: list[Problem] = []
    data = {
        "plan": 1,
        "model": target.model,
        "cluster": target.cluster,
        "stack": target.stack,
        "layout": _layout(foreign, target, problems),
        "sharding": foreign.value("sharding", "none"),
        "pipeline": _pipeline(foreign, arch, problems),
        "recompute": foreign.value("recompute", "none"),
    }
    gather = foreign.value("gather")
    if gather:
        data["gather"] = gather
    data["workload"] = _workload(foreign, target, data, problems, arch)
    data |= _dtypes(foreign, target.stack, data["workload"]["precision"])
    data |= _offload(foreign)
    wrong: list[Problem] = []
    draft = attempted(lambda: validated(ShortPlan, _usual(data)), wrong)
    if draft is None or any(problem.severity == "error" for problem in problems):
        return Assembled(None, draft, problems or wrong)
    staged = uneven_stages(foreign, draft, expand(draft, arch), arch, problems)
    return Assembled(staged and with_recomputed_layers(foreign, staged, arch), draft, problems)


def _usual(data: dict[str, Any]) -> dict[str, Any]:
    """Remove a gather that is the default, so that equal plans are written alike."""
    usual = "per-step" if data["layout"]["pp"] > 1 else "per-layer"
    if data.get("gather") == usual or data["sharding"] != "zero3":
        data.pop("gather", None)
    return data


def _layout(foreign: ImportedFile, target: Target, problems: list[Problem]) -> dict[str, Any]:
    degrees = {axis: int(foreign.value(f"layout.{axis}", 1)) for axis in (*AXES, "ep", "etp")}
    started = foreign.value("devices")
    if started is not None and started != target.devices:
        rule = f"the file starts {started} processes, the cluster has {target.devices} devices"
        hint = f"as many as {target.cluster} has, or another --on"
        problems.append(Problem("processes", started, rule, hint, "warning"))
    model_ranks = degrees["pp"] * degrees["cp"] * degrees["tp"]
    dp, rest = divmod(target.devices, model_ranks)
    if rest or dp == 0:
        product = "·".join(str(degrees[axis]) for axis in AXES)
        rule = f"pp·cp·tp = {product} = {model_ranks} does not divide {target.devices} devices"
        field = max((f"layout.{axis}" for axis in AXES), key=lambda path: int(foreign.value(path, 1)))
        problems.append(
            Problem(_key(foreign, field), foreign.value(field, 1), rule, _smaller(field, degrees, target))
        )
        dp = max(1, dp)
    layout: dict[str, Any] = {**degrees, **_data_parallel(foreign, dp, degrees["cp"], problems)}
    if degrees["tp"] > 1 and foreign.value("layout.sequence_parallel") is not None:
        layout["sequence_parallel"] = bool(foreign.value("layout.sequence_parallel"))
    if foreign.value("layout.rank_order"):
        layout["rank_order"] = foreign.value("layout.rank_order")
    if foreign.value("layout.context"):
        layout["context"] = foreign.value("layout.context")
    return layout


def _smaller(field: str, degrees: Mapping[str, int], target: Target) -> str:
    """Return the largest value of a degree that divides the devices with the others; 1 where those alone do not."""
    axis = field.rpartition(".")[2]
    others = prod(degrees[other] for other in AXES if other != axis)
    return f"{axis} {largest_divisor(target.devices // others, degrees[axis]) if target.devices % others == 0 else 1}"


def _data_parallel(foreign: ImportedFile, dp: int, cp: int, problems: list[Problem]) -> dict[str, int]:
    """dp_replicate and dp_shard: what the file says of either, the rest in the other."""
    stated = foreign.value("dp")
    if stated is not None and stated != dp:
        rule = f"data parallelism is devices / (pp·cp·tp) = {dp}"
        problems.append(Problem(_key(foreign, "dp"), stated, rule, f"{dp}"))
    replicate, shard = foreign.value("layout.dp_replicate"), foreign.value("layout.dp_shard")
    group = foreign.value("shard_group")
    if shard is None and group is not None:
        shard = max(1, group // cp)
    if foreign.value("sharding", "none") == "none" and shard is None:
        return {"dp_replicate": dp, "dp_shard": 1}
    if replicate is None:
        replicate = dp // shard if shard and dp % shard == 0 else 1
    if shard is None:
        shard = dp // replicate
    if replicate * shard != dp:
        path = "layout.dp_shard" if "layout.dp_shard" in foreign.facts else "layout.dp_replicate"
        rule = f"dp_replicate·dp_shard = {replicate}·{shard} = {replicate * shard} must be {dp}"
        problems.append(
            Problem(
                _key(foreign, path),
                foreign.value(path),
                rule,
                f"{_key(foreign, path)} {dp // (shard if path.endswith('replicate') else replicate) or 1}",
            )
        )
    return {"dp_replicate": replicate, "dp_shard": shard}


def _pipeline(foreign: ImportedFile, arch: Architecture, problems: list[Problem]) -> dict[str, Any]:
    pp, stages = int(foreign.value("layout.pp", 1)), foreign.value("stages")
    per_rank = int(foreign.value("pipeline.virtual_stages", 1))
    each, layers = foreign.value("layers_per_stage"), spread_layers(foreign, arch)
    if stages:
        per_rank = max(1, len(stages) // pp)
    elif each and layers % (pp * each) == 0:
        per_rank = layers // (pp * each)
    elif each:
        rest = layers % (pp * each)
        rule = f"layers mod pp·layers per stage = {layers} mod {pp * each} = {rest}, must be 0"
        problems.append(
            Problem(
                _key(foreign, "layers_per_stage"),
                each,
                rule,
                f"{largest_divisor(max(1, layers // pp), each)}",
            )
        )
    default = "interleaved-1f1b" if per_rank > 1 else "1f1b"
    return {
        "schedule": foreign.value("pipeline.schedule", default),
        "micro_batch": int(foreign.value("pipeline.micro_batch", 1)),
        "virtual_stages": per_rank,
    }


def _workload(
    foreign: ImportedFile,
    target: Target,
    data: Mapping[str, Any],
    problems: list[Problem],
    arch: Architecture,
) -> dict[str, Any]:
    layout, micro_batch = data["layout"], data["pipeline"]["micro_batch"]
    accumulation = foreign.value("accumulation", 1)
    computed = micro_batch * accumulation * layout["dp_replicate"] * layout["dp_shard"]
    batch = target.global_batch or foreign.value("workload.global_batch") or computed
    if target.global_batch is None and batch != computed and foreign.value("accumulation"):
        problems.append(_contradicted_batch(foreign, batch, micro_batch, layout))
    problems += _batch_doubts(
        foreign, target, batch, layout["dp_replicate"] * layout["dp_shard"] * micro_batch
    )
    seq_len = target.seq_len or foreign.value("workload.seq_len")
    if seq_len is None:
        problems.append(Problem("seq_len", None, "the file does not say it", "--seq-len 4096"))
    precision = foreign.value("workload.precision", "bf16")
    capacity, recipe = foreign.value("workload.capacity"), foreign.value("workload.fp8_recipe")
    usual = recipe == load_stack(target.stack).fp8_recipes[0]
    return {
        **({} if capacity is None else {"capacity": capacity}),
        **({} if recipe is None or usual else {"fp8_recipe": recipe}),
        "task": foreign.value("workload.task", "pretrain"),
        **_adapter(foreign, arch),
        "seq_len": seq_len or 1,
        "global_batch": batch,
        "precision": precision,
        "optimizer": _optimizer(foreign, load_stack(target.stack).muon_scale),
    }


def _adapter(foreign: ImportedFile, arch: Architecture) -> dict[str, Any]:
    """Return the adapters of the file in our names, without what is usual."""
    said = foreign.value("workload.adapter")
    if said is None:
        return {}
    model, adapter = build_graph(arch), dict(said)
    written = adapter.pop("targets", None)
    if written is not None and not unknown_targets(model, written):
        own = own_names(model, written)
        if own != chosen_targets(model, None):
            adapter["targets"] = own
    elif written is not None:
        adapter["targets"] = tuple(written)
    if adapter.get("alpha") == adapter["rank"]:
        del adapter["alpha"]
    return {"adapter": adapter}


def _optimizer(foreign: ImportedFile, scale: str) -> str | dict[str, Any]:
    """Return the optimizer with the options that are not a plan's own; ``scale`` is the stack's."""
    optimizer = Optimizer(foreign.value("workload.optimizer", "adamw"))
    options = {
        key: value
        for key, usual in optimizer.options_of(scale).items()
        if (value := foreign.value(f"optimizer.{key}", usual)) != usual
    }
    return {"name": optimizer.name, **options} if options else optimizer.name


def _dtypes(foreign: ImportedFile, stack: str, precision: str) -> dict[str, Any]:
    """Return the element types that differ from the stack's own and that a plan for it may write."""
    facts = load_stack(stack)
    said = said_types(foreign, facts, precision)
    usual = usual_types(facts, precision).to_data()
    own = {key: value for key, value in said.items() if value != usual[key]}
    if types_of(facts, precision, own) != types_of(facts, precision, said):
        own = said  # a key that is as usual, while those that it follows are not
    return {"dtypes": own} if own else {}


def _offload(foreign: ImportedFile) -> dict[str, Any]:
    """Return the shares of states that the file keeps on the host."""
    shares = {name: float(foreign.value(f"offload.{name}", 0.0)) for name in ("optimizer", "parameters")}
    there = {name: "all" if share == 1 else share for name, share in shares.items() if share > 0}
    return {"offload": there} if there else {}


def _contradicted_batch(
    foreign: ImportedFile, batch: int, micro_batch: int, layout: Mapping[str, int]
) -> Problem:
    """Find a batch that is not micro-batch·accumulation·ranks, in the file's own count of ranks."""
    accumulation, dp = foreign.value("accumulation"), layout["dp_replicate"] * layout["dp_shard"]
    each, counted = micro_batch * dp, foreign.value("batch_ranks", 1)
    paths = ("workload.global_batch", "pipeline.micro_batch", "accumulation")
    key, micro, steps = (_key(foreign, path) for path in paths)
    ranks, factor = ("data-parallel ranks·tp", f"·{counted}") if counted > 1 else ("data-parallel ranks", "")
    said = each * accumulation * counted
    rule = f"{key} = {micro}·{steps}·{ranks} = {micro_batch}·{accumulation}·{dp}{factor} = {said}"
    other = "" if batch % each else f", or {steps} {batch // each}"
    return Problem(key, batch * counted, f"{rule}, not {batch * counted}", f"{key} {said}{other}")


def _batch_doubts(foreign: ImportedFile, target: Target, batch: int, at_once: int) -> Iterator[Problem]:
    """Return the remark on the assumed batch; ``at_once`` are the sequences of one micro-batch on all ranks."""
    said = ("workload.global_batch", "pipeline.micro_batch", "accumulation")
    if target.global_batch is None and not any(path in foreign.facts for path in said):
        rule = f"the file does not say it: one sequence per rank is read, {batch} in all"
        yield Problem("global_batch", None, rule, f"--global-batch {batch}", "warning")
    flush = foreign.value("flush")
    if flush and batch > flush * at_once:
        rule = f"the pipeline is flushed after every {flush} micro-batches, {batch // (flush * at_once)} times a step; "
        rule += "the plan flushes it once and is predicted quicker"
        yield Problem(_key(foreign, "flush"), flush, rule, f"{batch // at_once} micro-batches", "warning")


def _key(foreign: ImportedFile, path: str) -> str:
    """Return the file's own name of a fact: the first of its words."""
    return foreign.words(path).split(" ")[0]
