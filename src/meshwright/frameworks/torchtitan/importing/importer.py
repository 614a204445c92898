"""Import from torchtitan 0.3.0: its command line, in a launch script or by itself.

Source: torchtitan 0.3.0, ``config/job_config.py`` defaults and ``distributed/pipeline_parallel.py``. tyro takes
hyphens for underscores. What the configuration function sets in Python and the line does not override (degrees, batch,
recomputation) stands in ``frameworks/torchtitan/torchtitan-0.3.0-defaults.csv``, read from the release's own functions;
of the three in 8 bit, which start on newer devices only, from their siblings and the repository of August 2026.
"""

import csv
from collections.abc import Mapping
from importlib.resources import files

from meshwright.errors import InputError, Problem, nearest
from meshwright.frameworks.importing.command_line import (
    CommandLine,
    GivenOption,
    conditional_variables,
    given_options,
    last_of_each,
    raise_on_unknown_options,
    repeated,
    unknown_option_problems,
    whole_number,
)
from meshwright.frameworks.importing.imported_file import Fact, ImportedFile, UnmappedOption
from meshwright.frameworks.importing.shell_script import Script, Word, read_script
from meshwright.frameworks.option_table import read_facts
from meshwright.frameworks.torchtitan import options as names
from meshwright.frameworks.torchtitan.importing.pipeline_stages import stage_facts
from meshwright.stack.load import load_stack
from meshwright.stack.stack_model import StackModel

DEFAULTS = "torchtitan-0.3.0-defaults.csv"
OWN_CHECKPOINT = "--activation_checkpoint"
"""The column of the defaults that is a subcommand on the line."""
WHY: Mapping[str, str] = {
    f"{names.T}enable_cpu_offload": "offload is not priced: less memory and a longer step than predicted",
    "--compile.enable_async_tensor_parallel": "overlap of tp is not priced: a shorter step than predicted",
    f"{names.P}pipeline_parallel_schedule_csv": "a schedule from a file",
    f"{names.P}context_parallel_load_balancer": "context parallelism is one balanced ring",
    f"{names.P}enable_fsdp_symm_mem": "symmetric memory is not priced",
}


def import_torchtitan(text: str) -> ImportedFile:
    """Read a torchtitan command line."""
    script = read_script(text)
    options = [_normal(option) for option in given_options(script.words)]
    kept = last_of_each(options)
    if not any(name.startswith((names.P, names.T)) or name == names.MODULE for name in kept):
        rule = "has none of torchtitan's options"
        raise InputError(
            Problem("file", " ".join(list(kept)[:5]), rule, f"{names.P}tensor_parallel_degree 8")
        )
    said, kept = kept, {**_defaults(kept), **kept}
    problems = list(
        unknown_option_problems(said, names.TABLE.names, names.TABLE.other_names, names.TABLE.full_name)
    )
    raise_on_unknown_options(problems)
    problems += [*repeated(options, names.NUMBERS), *conditional_variables(script)]
    line = CommandLine(kept, problems, "the default")
    facts = {"stack": Fact("torchtitan", "torchtitan options")} | read_facts(names.TABLE.rows, line)
    shipped = _shipped(kept, problems)
    facts |= _model_facts(shipped) | _devices(kept, script)
    facts |= _batch(kept, facts, problems) | _layout(kept, facts)
    facts |= _workload(kept, shipped) | _recompute(script.words, kept, problems)
    facts |= stage_facts(kept, facts, problems)
    unread = tuple(UnmappedOption(n, " ".join(g.values), WHY[n]) for n, g in kept.items() if n in WHY)
    return ImportedFile(
        source="torchtitan",
        release=names.TABLE.full_name,
        facts=facts,
        unread=unread,
        problems=tuple(problems),
    )


def _normal(option: GivenOption) -> GivenOption:
    """Return the option with underscores, without the subcommand words that follow it."""
    name = "--" + option.name[2:].replace("-", "_")
    values = tuple(value for value in option.values if not value.startswith("activation-checkpoint:"))
    return GivenOption(name, values, option.line, option.known, option.conditional)


def _shipped(options: Mapping[str, GivenOption], problems: list[Problem]) -> StackModel | None:
    given = options.get(names.CONFIG)
    if given is None or not given.values:
        return None
    models = {model.config: model for model in load_stack("torchtitan").models or ()}
    if given.values[0] not in models:
        rule = "is none of the configurations that we know by shape"
        problems.append(
            Problem(names.CONFIG, given.values[0], rule, nearest(given.values[0], models), "warning")
        )
    return models.get(given.values[0])


def _model_facts(shipped: StackModel | None) -> dict[str, Fact]:
    """Return the shape of the configuration's model as fields of ``Architecture``."""
    if shipped is None:
        return {}
    names = ("layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab", "experts")
    words = f"--config {shipped.config}"
    return {f"model.{n}": Fact(value, words) for n in names if (value := getattr(shipped, n)) is not None}


def _devices(options: Mapping[str, GivenOption], script: Script) -> dict[str, Fact]:
    nodes = next((options[n] for n in ("--nnodes", "--nodes") if n in options), None)
    each = options.get("--nproc_per_node")
    if nodes and each and _count(nodes) and _count(each):
        return {"devices": Fact(_count(nodes) * _count(each), f"{nodes.words} {each.words}")}
    alone = script.variables.get("NGPU", "")
    return {"devices": Fact(int(alone[:9]), f"NGPU={alone}")} if alone.isdecimal() and nodes is None else {}


def _count(option: GivenOption) -> int:
    text = option.values[0] if option.values else ""
    return int(text[:9]) if text.isdecimal() else 0


def _batch(
    options: Mapping[str, GivenOption], facts: dict[str, Fact], problems: list[Problem]
) -> dict[str, Fact]:
    """Read the batch: the local batch is one micro-batch, or several with a pipeline."""
    found: dict[str, Fact] = {}
    local = facts.pop("local_batch", None)
    piped = facts.get("layout.pp", Fact(1, "")).value > 1
    if not piped:
        return found | ({"pipeline.micro_batch": local} if local else {})
    given = options.get(names.MICRO_BATCH)
    size = whole_number(given, problems) if given else 1
    words = given.words if given else "pipeline_parallel_microbatch_size left out: 1"
    if size and local and local.value % size:
        rule = f"local batch mod micro-batch = {local.value} mod {size} = {local.value % size}, must be 0"
        problems.append(
            Problem(
                names.LOCAL_BATCH,
                local.value,
                rule,
                f"{names.LOCAL_BATCH} {-(-local.value // size) * size}",
            )
        )
    elif size and local:
        name = "flush" if "workload.global_batch" in facts else "accumulation"
        found[name] = Fact(local.value // size, local.words)
    return found | ({"pipeline.micro_batch": Fact(size, words)} if size else {})


def _layout(options: Mapping[str, GivenOption], facts: dict[str, Fact]) -> dict[str, Fact]:
    said = facts["layout.sequence_parallel"]
    found = {"layout.sequence_parallel": said._replace(words=said.words.removeprefix(names.P))}
    experts = facts.get("layout.ep", Fact(1, "")).value
    tp = facts.get("layout.tp", Fact(1, "")).value
    if "model.experts" in facts or experts > 1:
        found["layout.etp"] = Fact(1 if experts > 1 else tp, "1 with expert_parallel_degree, as tp without")
    if facts.get("layout.cp", Fact(1, "")).value > 1:
        found["layout.context"] = Fact("all-gather", "torch gathers keys and values")
    return found | _sharding(options, facts)


def _sharding(options: Mapping[str, GivenOption], facts: dict[str, Fact]) -> dict[str, Fact]:
    """FSDP is on where dp_shard·cp > 1, or dp_shard·cp·tp / ep > 1 for experts.

    The default reshards after the forward pass unless there is a pipeline. Parameters that stay gathered until the
    backward pass are those of zero2; under a pipeline they stay until the last micro-batch's, gathered once a step.
    """
    shard = facts.get("layout.dp_shard")
    cp, tp, ep = (facts.get(f"layout.{axis}", Fact(1, "")).value for axis in ("cp", "tp", "ep"))
    if shard and shard.value * cp == 1 and (ep == 1 or tp <= ep):
        return {"sharding": Fact("none", shard.words)}
    piped = facts.get("layout.pp", Fact(1, "")).value > 1
    given = options.get(names.RESHARD)
    policy = given.values[0] if given and given.values else "default"
    whole = policy == "always" or (policy == "default" and not piped)
    words = given.words if given else "fsdp_reshard_after_forward default"
    if not whole and not piped:
        return {"sharding": Fact("zero2", words)}
    return {"sharding": Fact("zero3", words), "gather": Fact("per-layer" if whole else "per-step", words)}


def _workload(options: Mapping[str, GivenOption], shipped: StackModel | None) -> dict[str, Fact]:
    given = options.get(names.DTYPE)
    plain = given is not None and given.values[:1] == ("float32",)
    quantised = shipped is not None and not {"bf16", "fp32"} & set(shipped.precisions)
    precision = "fp32" if plain else shipped.precisions[0] if shipped and quantised else "bf16"
    words = given.words if given else f"--config {shipped.config}" if shipped else "the default"
    return {"workload.precision": Fact(precision, words), "workload.optimizer": Fact("adamw", "the default")}


def _defaults(options: Mapping[str, GivenOption]) -> dict[str, GivenOption]:
    """Return the options that the line's configuration function sets by itself."""
    config = options.get(names.CONFIG)
    if config is None or not config.values:
        return {}
    table = files("meshwright.frameworks.torchtitan").joinpath(DEFAULTS).read_text(encoding="utf-8")
    rows = {row.pop("config"): row for row in csv.DictReader(table.splitlines())}
    found = rows.get(config.values[0], {})
    return {f"--{name}": GivenOption(f"--{name}", (value,), config.line) for name, value in found.items()}


def _recompute(
    words: tuple[Word, ...], options: Mapping[str, GivenOption], problems: list[Problem]
) -> dict[str, Fact]:
    """Read the recomputation subcommand; without one the configuration's own choice holds."""
    chosen = [word.text for word in words if word.text.startswith("activation-checkpoint:")]
    if not chosen:
        own = options.get(OWN_CHECKPOINT)
        return {"recompute": Fact(own.values[0], options[names.CONFIG].words)} if own else {}
    name = chosen[-1].partition(":")[2]
    if name in ("none", "selective", "full"):
        return {"recompute": Fact(name, chosen[-1])}
    rule = "recomputes what a memory budget asks for: no plan says it"
    severe = name != "memory-budget"
    rule = "is no subcommand of torchtitan 0.3.0" if severe else rule
    hint = nearest(name, ("none", "selective", "full", "memory-budget"))
    problems.append(Problem("activation-checkpoint", name, rule, hint, "error" if severe else "warning"))
    return {}
